// expect: calm::sequential: the outputs of a layer must equal the inputs of the next
#include "calm/nn/linear.hpp"
#include "calm/nn/sequential.hpp"

#ifdef CALM_SHOULD_FAIL
using model = calm::sequential<calm::linear<4, 8>, calm::linear<9, 3>>;
#else
using model = calm::sequential<calm::linear<4, 8>, calm::linear<8, 3>>;
#endif

auto run(calm::context<>& ctx, model const& m, calm::matrix_view<float const, 4> const& x) {
    return m.forward(ctx, x).y;
}
