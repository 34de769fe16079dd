// Loads the program that is tested the way Python loads a framework: for itself alone, so that neither the program nor
// its cuDNN is among the libraries that RTLD_NEXT looks through.
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments) {
    void *program = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    int (*run)(const char *) = program ? dlsym(program, "run") : 0;
    if (!run) return fprintf(stderr, "%s\n", dlerror()), 2;
    return run(arguments[2]);
}
