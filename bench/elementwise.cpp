// silu(g) * u and its gradient, in the L2 cache and in memory: as an expression, as a hand-written packet loop, and as
// a plain loop over std::exp.

#include <cmath>
#include <cstring>

#include "calm/tensor/core/tensor.hpp"
#include "calm/tensor/expr/expr.hpp"
#include "calm/tensor/ops/fill.hpp"
#include "program.hpp"

namespace {

using calm::index_t;
using vector = calm::tensor<float, calm::extents<calm::dyn>>;
using packet = calm::packet<float>;
constexpr index_t width = calm::lanes<packet>;

struct operands {
    vector g, u, y, dg, du;
    explicit operands(index_t n) : g(shape(n)), u(shape(n)), y(shape(n)), dg(shape(n)), du(shape(n)) {
        calm::context<> const ctx;
        calm::fill_normal(ctx, g.view(), calm::key{1});
        calm::fill_normal(ctx, u.view(), calm::key{2});
    }
    static calm::extents<calm::dyn> shape(index_t n) { return calm::extents<calm::dyn>(n); }
};

using form = void (*)(calm::context<> const&, operands&);

void forward_expression(calm::context<> const& ctx, operands& o) {
    evaluate(ctx, o.y, silu(o.g) * o.u);
}
void backward_expression(calm::context<> const& ctx, operands& o) {
    differentiate(ctx, silu(calm::wrt(o.g, o.dg)) * calm::wrt(o.u, o.du), o.y);
}

// n must be a multiple of the packet width, so that only the packet loop is timed.
void forward_packets(calm::context<> const& ctx, operands& o) {
    ctx.parallel_ranges(o.y.size(), 16384, [&](index_t begin, index_t end) {
        for (index_t i = begin; i < end; i += width) {
            packet const g = calm::load<packet>(o.g.data() + i);
            packet const u = calm::load<packet>(o.u.data() + i);
            calm::store(o.y.data() + i, packet(g / (calm::math::exp(packet(-g)) + 1.0F) * u));
        }
    });
}
void backward_packets(calm::context<> const& ctx, operands& o) {
    ctx.parallel_ranges(o.y.size(), 16384, [&](index_t begin, index_t end) {
        for (index_t i = begin; i < end; i += width) {
            packet const g = calm::load<packet>(o.g.data() + i);
            packet const u = calm::load<packet>(o.u.data() + i);
            packet const dy = calm::load<packet>(o.y.data() + i);
            packet const s = 1.0F / (calm::math::exp(packet(-g)) + 1.0F);
            packet const silu = g * s;
            calm::store(o.dg.data() + i, packet(dy * u * (s + silu - silu * s)));
            calm::store(o.du.data() + i, packet(dy * silu));
        }
    });
}

void forward_plain(calm::context<> const& ctx, operands& o) {
    ctx.parallel_ranges(o.y.size(), 16384, [&](index_t begin, index_t end) {
        for (index_t i = begin; i < end; ++i) o.y[i] = o.g[i] / (1.0F + std::exp(-o.g[i])) * o.u[i];
    });
}
void backward_plain(calm::context<> const& ctx, operands& o) {
    ctx.parallel_ranges(o.y.size(), 16384, [&](index_t begin, index_t end) {
        for (index_t i = begin; i < end; ++i) {
            float const s = 1.0F / (1.0F + std::exp(-o.g[i]));
            float const silu = o.g[i] * s;
            o.dg[i] = o.y[i] * o.u[i] * (s + silu * (1.0F - s));
            o.du[i] = o.y[i] * silu;
        }
    });
}

// `arrays`: the number of arrays read or written, for counting bytes.
void add_forms(std::string const& name, int threads, int arrays, form expression, form packets, form plain) {
    struct place {
        char const* name;
        index_t n;
    };
    for (place const p : {place{"L2", 1 << 15}, place{"memory", 1 << 25}})
        for (auto const& [how, f] : {std::pair{"expression", expression}, {"packets", packets}, {"std::exp", plain}})
            bench::add(name + "/" + how + "/" + p.name, [threads, arrays, n = p.n, f = f](benchmark::State& state) {
                calm::context<> const ctx(1, threads);
                operands o(n);
                double const seconds = bench::measure(state, [&] { f(ctx, o); });
                state.counters["ns_element"] = seconds / static_cast<double>(n) * 1e9;
                bench::report_bytes(state, static_cast<double>(n) * 4 * arrays, seconds);
            });
}

}  // namespace

int main(int argc, char** argv) {
    return bench::run(argc, argv, [](int threads) {
        add_forms("silu(g)*u", threads, 3, forward_expression, forward_packets, forward_plain);
        add_forms("gradient", threads, 5, backward_expression, backward_packets, backward_plain);
    });
}
