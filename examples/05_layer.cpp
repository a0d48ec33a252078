// A custom layer, y = x + sigmoid(gate(x)) * up(x). The complex-step method checks its gradients.
#include <algorithm>
#include <complex>
#include <cstdio>

#include "calm/eigen.hpp"  // products of complex numbers
#include "calm/nn/linear.hpp"

template <calm::index_t D, class Space = calm::space<>> struct gated {
    using space_type = Space;  // device and scalar type, float on the cpu by default
    using T = typename Space::scalar;
    static constexpr calm::index_t inputs = D, outputs = D;
    using projection = calm::linear<D, D, calm::with_bias::yes, Space>;

    projection gate, up;
    struct saved_activations {
        typename projection::saved_activations gate, up;
        calm::matrix_view<T, D> y;  // (R, D), the result
    };
    saved_activations forward(calm::context<>& ctx, calm::matrix_view<T const, D> const& x) const {
        saved_activations const s{gate.forward(ctx, x), up.forward(ctx, x), ctx.saved.take<T>(x.extents())};
        evaluate(ctx, s.y, x + sigmoid(s.gate.y) * s.up.y);
        return s;
    }
    // Overwrites dx and accumulates the parameters' gradients.
    void backward(calm::context<>& ctx, saved_activations const& s, calm::matrix_view<T const, D> const& dy,
                  calm::matrix_view<T, D> const& dx) {
        calm::arena_scope const scope(ctx.workspace);
        auto const dgate = ctx.workspace.take<T>(dy.extents()), dup = ctx.workspace.take<T>(dy.extents());
        differentiate(ctx, sigmoid(wrt(s.gate.y, dgate)) * wrt(s.up.y, dup), dy);
        gate.backward(ctx, s.gate, dgate, dx);
        up.backward(ctx, s.up, dup, dgate);  // dgate is free now: it takes the gradient for x
        evaluate(ctx, dx, dx + dgate + dy);
    }
    template <class Visitor> void visit(Visitor& v) { visit_as("gate", gate, v), visit_as("up", up, v); }
};

int main() {
    using number = std::complex<double>;  // the same template, with numbers that carry a derivative
    calm::context<> ctx(1);
    calm::arena<> values("values"), gradients("gradients");
    gated<4, calm::space<calm::cpu, number>> layer;
    allocate(layer, values, &gradients);
    for (int n = 3; auto const& p : parameters_of(layer))
        for (auto& weight : p.value) weight = 0.1 * ((n += 7) % 11) - 0.5;
    calm::tensor<number, calm::extents<2, 4>> x, dx, dy;
    evaluate(ctx, x, x + 0.7);    // tensors begin with zeros, so x = 0.7
    evaluate(ctx, dy, dy + 1.0);  // dy = 1, the gradient of the sum of y
    layer.backward(ctx, layer.forward(ctx, x), dy, calm::matrix_view<number, 4>(dx));
    for (auto const& p : parameters_of(layer)) {
        double worst = 0;
        for (calm::index_t i = 0; i < p.value.size(); ++i) {
            p.value[i] += number(0, 1e-30);
            double const slope = sum(ctx, layer.forward(ctx, x).y * 1.0).imag() / 1e-30;
            worst = std::max(worst, std::abs(slope - p.grad[i].real()));
            p.value[i] -= number(0, 1e-30);
        }
        std::printf("%-12s largest error of a gradient %.1e\n", p.name.c_str(), worst);
    }
}
