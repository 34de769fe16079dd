// A program without cuDNN that calls it nevertheless.
#include <stdio.h>

int cudnnConvolutionForward(void *, ...);

int main(void) { return printf("%d\n", cudnnConvolutionForward(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)), 0; }
