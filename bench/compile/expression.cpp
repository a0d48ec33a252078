// ceiling: 0.5 x the rival, 0.5 GiB
// An element-wise expression and its gradient.

#include "calm/tensor/core/tensor.hpp"
#include "calm/tensor/expr/expr.hpp"

int main() {
    using vector = calm::tensor<float, calm::extents<calm::dyn>>;
    calm::context<> const ctx;
    calm::extents<calm::dyn> const shape(1000);
    vector gate(shape), up(shape), act(shape), dgate(shape), dup(shape);
    act = silu(gate) * up;
    differentiate(ctx, silu(calm::wrt(gate, dgate)) * calm::wrt(up, dup), act);
    return act[0] == 0 ? 0 : 1;
}
