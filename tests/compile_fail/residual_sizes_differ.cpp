// expect: calm::residual: the layer.s outputs must equal its inputs
#include "calm/nn/linear.hpp"
#include "calm/nn/sequential.hpp"

#ifdef CALM_SHOULD_FAIL
calm::residual<calm::linear<4, 5>> layer;
#else
calm::residual<calm::linear<4, 4>> layer;
#endif
