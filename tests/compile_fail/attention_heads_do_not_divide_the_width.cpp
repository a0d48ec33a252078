// expect: calm::attention: heads must divide the width
#include "calm/nn/attention.hpp"

#ifdef CALM_SHOULD_FAIL
calm::attention<32, 5, 5> layer;
#else
calm::attention<32, 4, 4> layer;
#endif
