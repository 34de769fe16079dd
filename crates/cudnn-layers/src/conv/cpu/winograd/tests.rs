//! Geometries at the borders of tiles, blocks of channels and blocks of tiles.

use super::{FUSED_2X2, FUSED_4X4, NONFUSED_4X4};
use crate::conv::{
    cpu::CpuAlgorithm,
    tests::{check, random_geometry},
};
use tensor::ConvGeometry;

const ALL: [&dyn CpuAlgorithm; 3] = [FUSED_2X2, FUSED_4X4, NONFUSED_4X4];

#[test]
fn images_at_the_borders_of_tiles() {
    for (n, image) in [(3, [13, 13]), (5, [7, 7]), (1, [56, 56]), (2, [1, 1]), (2, [3, 18]), (2, [9, 4])] {
        for pad in [[1, 1], [0, 0], [2, 2], [2, 0], [0, 1]] {
            let g = ConvGeometry::new([n, 3, image[0], image[1]], 5, [3, 3]).pad(pad);
            if g.validate().is_ok() {
                ALL.into_iter().for_each(|algorithm| assert_eq!(check(algorithm, &g, 3), 3));
            }
        }
    }
}

#[test]
fn channels_at_the_borders_of_blocks() {
    for (c, k, groups) in [(16, 48, 1), (17, 49, 1), (33, 64, 1), (15, 31, 1), (34, 80, 2), (6, 3, 3)] {
        let g = ConvGeometry::new([2, c, 6, 9], k, [3, 3]).pad([1, 1]).groups(groups);
        ALL.into_iter().for_each(|algorithm| assert_eq!(check(algorithm, &g, 5), 3));
    }
}

#[test]
fn geometries_outside_the_method_are_refused() {
    let mut rng = tensor::rng::stream(7, 0);
    for seed in 0..100 {
        let g = random_geometry(&mut rng);
        let applies = [g.r, g.s] == [3, 3] && g.stride == [1, 1] && g.dilation == [1, 1];
        let expected = if !applies {
            0
        } else if g.pad[0].max(g.pad[1]) > 2 {
            2
        } else {
            3
        };
        ALL.into_iter().for_each(|algorithm| assert_eq!(check(algorithm, &g, seed), expected));
    }
}
