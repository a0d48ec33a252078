// A custom layer with forward, backward and visit; the complex-step method checks its gradients.
#include <complex>
#include <cstdio>

#include "calm/eigen.hpp"
#include "calm/nn/linear.hpp"
#include "calm/nn/sequential.hpp"

// y = x + sigmoid(gate(x)) * up(x)
template <calm::index_t D, class Space = calm::space<>> struct gated {
    using space_type = Space;  // storage type and device; float on the cpu by default
    using T = typename Space::storage;
    static constexpr calm::index_t inputs = D;
    static constexpr calm::index_t outputs = D;
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
        up.backward(ctx, s.up, dup, dgate);
        evaluate(ctx, dx, dx + dgate + dy);
    }
    template <class Visitor> void visit(Visitor& visitor) {
        visit_as("gate", gate, visitor);
        visit_as("up", up, visitor);
    }
};

int main() {
    using number = std::complex<double>;  // the same templates, with numbers that carry a derivative
    calm::context<> ctx(1);
    calm::arena<> values("values"), gradients("gradients");
    using complex = calm::space<calm::cpu, number>;
    calm::sequential<calm::linear<3, 4, calm::with_bias::yes, complex>, gated<4, complex>> net;
    allocate(net, values, &gradients);
    for (auto const& p : parameters_of(net))
        for (calm::index_t i = 0; i < p.value.size(); ++i)
            p.value[i] = 0.1 * static_cast<double>((i * 7 + 3) % 11) - 0.5;
    calm::tensor<number, calm::extents<2, 3>> x, dx;
    calm::tensor<number, calm::extents<2, 4>> dy;
    evaluate(ctx, x, x + 0.7);
    evaluate(ctx, dy, dy + 1.0);
    net.backward(ctx, net.forward(ctx, x), dy, calm::matrix_view<number, 3>(dx));
    for (auto const& p : parameters_of(net)) {  // for the sum of y
        double worst = 0;
        for (calm::index_t i = 0; i < p.value.size(); ++i) {
            p.value[i] += number(0, 1e-30);
            number const y = sum(ctx, net.forward(ctx, x).y * 1.0);
            p.value[i] -= number(0, 1e-30);
            worst = std::max(worst, std::abs(y.imag() / 1e-30 - p.grad[i].real()));
        }
        std::printf("%-14s %3d gradients, largest error %.1e\n", p.name.c_str(), static_cast<int>(p.value.size()),
                    worst);
    }
}
