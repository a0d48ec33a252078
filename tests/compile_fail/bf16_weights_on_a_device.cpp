// expect: calm::space: expected weights in bf16 on the cpu: the products of other executors do not widen them
#include "calm/nn/linear.hpp"

#ifdef CALM_SHOULD_FAIL
using backend = calm::emulated;
#else
using backend = calm::cpu;
#endif
calm::linear<3, 4, calm::with_bias::yes, calm::space<backend, float, float, float, calm::bf16>> layer;
