// expect: calm::space: expected weights of the type of the other numbers, or bf16 weights with float
#include "calm/nn/linear.hpp"

#ifdef CALM_SHOULD_FAIL
using number = double;
#else
using number = float;
#endif
calm::linear<3, 4, calm::with_bias::yes, calm::space<calm::emulated, number, calm::bf16>> layer;
