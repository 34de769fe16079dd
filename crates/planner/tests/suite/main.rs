//! The planner against closed forms, brute force and an ILP solver.

mod adaptive;
mod brute_force;
mod cost_table;
mod desirable;
mod estimator;
mod fronts;
mod fuzz;
mod goldens;
mod invariants;
mod knapsack;
mod noise;
mod plans;
mod recorded;
mod sharing;
mod synthetic;
mod units;
