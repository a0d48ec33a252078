// The graphs of attention, computed node by node on the host from their definitions, compared with the block kernels.
#include "calm/tensor/detail/device/attention_graph.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "calm/base/bf16.hpp"
#include "calm/tensor/detail/kernels/block/rounded_attention.hpp"
#include "calm/tensor/ops/attention.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;
using namespace calm::detail;

namespace {

using place = std::array<std::int64_t, 4>;
using memories = std::map<attention_part, std::vector<float>>;

// Evaluates a graph. Tensors start as NaN.
class graph_on_host {
public:
    // rounds: whether tensors of type bf16 are rounded.
    graph_on_host(attention_graph const& g, memories& outside, bool rounds) :
        graph_(g), outside_(outside), rounds_(rounds), inner_(g.tensors.size()) {
        for (std::size_t i = 0; i < inner_.size(); ++i) {
            auto const& t = g.tensors[i];
            if (t.is_number())
                inner_[i] = {t.value};
            else if (t.part == attention_part::inner)
                inner_[i].assign(static_cast<std::size_t>(t.span()), std::nanf(""));
            else
                BOOST_REQUIRE(std::ssize(memory(static_cast<int>(i))) >= t.span());
        }
        for (auto const& node : g.nodes) compute(node);
    }

private:
    [[nodiscard]] graph_tensor const& at(int i) const { return graph_.tensors[static_cast<std::size_t>(i)]; }
    std::vector<float>& memory(int i) {
        bool const is_inner = at(i).part == attention_part::inner || at(i).is_number();
        return is_inner ? inner_[static_cast<std::size_t>(i)] : outside_[at(i).part];
    }
    template <class F> static void each(place const& sizes, F const& f) {
        place p{};
        for (p[0] = 0; p[0] < sizes[0]; ++p[0])
            for (p[1] = 0; p[1] < sizes[1]; ++p[1])
                for (p[2] = 0; p[2] < sizes[2]; ++p[2])
                    for (p[3] = 0; p[3] < sizes[3]; ++p[3]) f(p);
    }
    static std::size_t offset(graph_tensor const& t, place const& p) {
        std::int64_t sum = 0;
        for (std::size_t i = 0; i < 4; ++i) {
            BOOST_REQUIRE(p[i] < t.sizes[i]);
            sum += p[i] * t.strides[i];
        }
        return static_cast<std::size_t>(sum);
    }
    // A dimension of size 1 is broadcast.
    float read(int i, place p) {
        for (std::size_t d = 0; d < 4; ++d)
            if (at(i).sizes[d] == 1) p[d] = 0;
        return memory(i)[offset(at(i), p)];
    }
    void write(int i, place const& p, float value) {
        BOOST_REQUIRE(!at(i).is_number());
        memory(i)[offset(at(i), p)] = stored(at(i), value);
    }
    [[nodiscard]] float stored(graph_tensor const& t, float value) const {
        return rounds_ && t.type == graph_type::bf16 ? static_cast<float>(bf16(value)) : value;
    }

    void compute(graph_node const& n) {
        switch (n.op) {
        case graph_op::matmul:
            return multiply(n);
        case graph_op::sum:
        case graph_op::largest:
            return reduce(n);
        case graph_op::reshape: {
            auto const& from = memory(n.a);
            BOOST_REQUIRE(at(n.a).span() == at(n.y).span());
            for (std::size_t i = 0; i < memory(n.y).size(); ++i) memory(n.y)[i] = stored(at(n.y), from[i]);
            return;
        }
        default:
            each(at(n.y).sizes, [&](place const& p) { write(n.y, p, number(n, p)); });
        }
    }
    float number(graph_node const& n, place const& p) {
        switch (n.op) {
        case graph_op::multiply:
            return read(n.a, p) * read(n.b, p);
        case graph_op::add:
            return read(n.a, p) + read(n.b, p);
        case graph_op::subtract:
            return read(n.a, p) - read(n.b, p);
        case graph_op::divide:
            return read(n.a, p) / read(n.b, p);
        case graph_op::exp:
            return std::exp(read(n.a, p));
        case graph_op::log:
            return std::log(read(n.a, p));
        case graph_op::row:
            return static_cast<float>(p[2]);
        case graph_op::column:
            return static_cast<float>(p[3]);
        case graph_op::not_below:
            return read(n.a, p) >= read(n.b, p) ? 1.0F : 0.0F;
        case graph_op::select:
            return read(n.c, p) != 0 ? read(n.a, p) : read(n.b, p);
        default:
            BOOST_FAIL("an operation that is known");
            return 0;
        }
    }
    void multiply(graph_node const& n) {
        auto const &a = at(n.a), &b = at(n.b), &y = at(n.y);
        BOOST_REQUIRE((a.sizes[3] == b.sizes[2] && y.sizes[2] == a.sizes[2] && y.sizes[3] == b.sizes[3]));
        BOOST_REQUIRE((y.sizes[0] == a.sizes[0] && a.sizes[0] == b.sizes[0] && y.sizes[1] == a.sizes[1]));
        BOOST_REQUIRE(a.sizes[1] % b.sizes[1] == 0);
        std::int64_t const together = a.sizes[1] / b.sizes[1];
        each(y.sizes, [&](place const& p) {
            double sum = 0;
            for (std::int64_t l = 0; l < a.sizes[3]; ++l)
                sum += double{memory(n.a)[offset(a, {p[0], p[1], p[2], l})]} *
                       double{memory(n.b)[offset(b, {p[0], p[1] / together, l, p[3]})]};
            write(n.y, p, static_cast<float>(sum));
        });
    }
    void reduce(graph_node const& n) {
        auto const &a = at(n.a), &y = at(n.y);
        std::map<place, double> found;
        each(a.sizes, [&](place const& p) {
            place to = p;
            for (std::size_t d = 0; d < 4; ++d) {
                BOOST_REQUIRE(a.sizes[d] % y.sizes[d] == 0);
                to[d] /= a.sizes[d] / y.sizes[d];
            }
            double const x = memory(n.a)[offset(a, p)];
            auto const [one, is_new] = found.try_emplace(to, x);
            if (!is_new) one->second = n.op == graph_op::sum ? one->second + x : std::max(one->second, x);
        });
        for (auto const& [p, x] : found) write(n.y, p, static_cast<float>(x));
    }

    attention_graph const& graph_;
    memories& outside_;
    bool rounds_;
    std::vector<std::vector<float>> inner_;
};
void compute(attention_graph const& g, memories& m, bool rounds) {
    [[maybe_unused]] graph_on_host const computed(g, m, rounds);
}

struct attended {
    index_t sequences, positions, heads, kv_heads, head_size;
    [[nodiscard]] index_t rows() const { return sequences * positions; }
    [[nodiscard]] index_t q() const { return rows() * heads * head_size; }
    [[nodiscard]] index_t kv() const { return rows() * kv_heads * head_size; }
    [[nodiscard]] attention_shape shape() const {
        return shape_of_attention({rows(), heads * head_size}, kv_heads * head_size, positions, head_size);
    }
};

std::vector<float> rounded_draws(index_t n, std::uint64_t seed, double spread) {
    auto x = draws<float>(n, seed, spread);
    for (float& each : x) each = static_cast<float>(bf16(each));
    return x;
}

// The block kernels on the same numbers in fp32.
memories by_blocks(attended const& s, memories m) {
    context<blocks> ctx(1, 1);
    auto const rows = [&](attention_part part, index_t n) {
        m[part].resize(static_cast<std::size_t>(n));
        return matrix_view<float, dyn, blocks>(m[part].data(), extents<dyn, dyn>(s.rows(), n / s.rows()));
    };
    using enum attention_part;
    auto const q_rows = rows(q, s.q()), k_rows = rows(k, s.kv()), v_rows = rows(v, s.kv()), o_rows = rows(o, s.q()),
               dout_rows = rows(dout, s.q()), dq_rows = rows(dq, s.q()), dk_rows = rows(dk, s.kv()),
               dv_rows = rows(dv, s.kv());
    m[lse].resize(static_cast<std::size_t>(s.rows() * s.heads));
    vector_view<float, dyn, blocks> const sums(m[lse].data(), extents<dyn>(s.rows() * s.heads));
    causal_attention(ctx, o_rows, sums, q_rows, k_rows, v_rows, s.positions, s.head_size);
    causal_attention_back(
        ctx, dq_rows, dk_rows, dv_rows, dout_rows, sums,
        {.y = o_rows, .q = q_rows, .k = k_rows, .v = v_rows, .positions = s.positions, .head_size = s.head_size});
    return m;
}

// The largest difference, relative to the largest magnitude of `want`.
double apart(std::vector<float> const& got, std::vector<float> const& want) {
    BOOST_REQUIRE(got.size() == want.size());
    double most = 0, off = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        most = std::max(most, std::abs(double{want[i]}));
        off = std::isnan(got[i]) ? 1e9 : std::max(off, std::abs(double{got[i]} - double{want[i]}));
    }
    return off / most;
}

}  // namespace

// Without rounding the graphs agree with the block kernels. With bf16 rounding they agree within 1/32 of the largest
// number: each bf16 tensor is rounded by up to 2^-8 of each element.
BOOST_AUTO_TEST_CASE(attention_graphs_match_the_block_kernels) {
    using enum attention_part;
    for (attended const& s :
         {attended{1, 1, 1, 1, 8}, attended{2, 7, 2, 2, 8}, attended{1, 40, 3, 1, 16}, attended{2, 33, 4, 2, 8}})
        for (bool const rounds : {false, true}) {
            memories m{{q, rounded_draws(s.q(), 1, 2)},
                       {k, rounded_draws(s.kv(), 2, 2)},
                       {v, rounded_draws(s.kv(), 3, 1)},
                       {dout, rounded_draws(s.q(), 4, 1)}};
            auto const want = by_blocks(s, m);
            for (auto const part : {o, dq}) m[part].assign(static_cast<std::size_t>(s.q()), std::nanf(""));
            for (auto const part : {dk, dv}) m[part].assign(static_cast<std::size_t>(s.kv()), std::nanf(""));
            for (auto const part : {wide_dk, wide_dv}) m[part].assign(static_cast<std::size_t>(s.q()), std::nanf(""));
            for (auto const part : {lse, delta})
                m[part].assign(static_cast<std::size_t>(s.rows() * s.heads), std::nanf(""));
            compute(forward_graph(s.shape()), m, rounds);
            compute(backward_graph(s.shape()), m, rounds);
            BOOST_TEST(apart(m[lse], want.at(lse)) < 1e-5);
            for (auto const part : {o, dv, dq, dk}) {
                // With one position the gradients of q and k are zero up to rounding.
                if (s.positions == 1 && (part == dq || part == dk)) continue;
                double const off = apart(m[part], want.at(part));
                BOOST_TEST(off < (rounds ? 1.0 / 32 : 1e-5),
                           "part " << static_cast<int>(part) << " of " << s.positions << " positions: " << off);
            }
        }
}

namespace {

// Computes a graph in the emulated device's memory, as a library does in GPU memory.
void compute_there(attention_graph const& g, attention_memory const& there) {
    host_access const access;
    memories m;
    auto const all = outside_of(g);
    for (auto const& t : all) {
        if (t.is_number()) continue;
        BOOST_REQUIRE(there[t.part] != nullptr);
        auto& here = m[t.part];
        for (std::int64_t i = 0; i < t.span(); ++i)
            here.push_back(t.type == graph_type::bf16 ? float{static_cast<bf16 const*>(there[t.part])[i]}
                                                      : static_cast<float const*>(there[t.part])[i]);
    }
    compute(g, m, true);
    for (auto const& n : g.nodes) {
        auto const& t = g.tensors[static_cast<std::size_t>(n.y)];
        if (t.part == attention_part::inner) continue;
        for (std::int64_t i = 0; i < t.span(); ++i) {
            float const value = m[t.part][static_cast<std::size_t>(i)];
            if (t.type == graph_type::bf16)
                static_cast<bf16*>(there[t.part])[i] = bf16(value);
            else
                static_cast<float*>(there[t.part])[i] = value;
        }
    }
}

}  // namespace

// The steps around a graph: inputs are rounded, every part has memory, and outputs are converted back to float. A dry
// run takes as much memory.
BOOST_AUTO_TEST_CASE(attention_in_bf16_rounds_computes_and_widens) {
    using enum attention_part;
    context<emulated> ctx(1, 1);
    for (attended const& s : {attended{2, 7, 2, 2, 8}, attended{2, 19, 4, 2, 8}}) {
        arena_scope const scope(ctx.saved);
        memories m;
        auto const take = [&](attention_part part, index_t n, std::uint64_t seed) {
            auto const there = ctx.saved.take<float>(extents<dyn>(n));
            draw(there, seed);
            m[part] = copied(there);
            for (float& each : m[part]) each = static_cast<float>(bf16(each));
            return there.data();
        };
        auto* const q_there = take(q, s.q(), 1);
        auto* const k_there = take(k, s.kv(), 2);
        auto* const v_there = take(v, s.kv(), 3);
        auto* const dout_there = take(dout, s.q(), 4);
        auto* const o_there = take(o, s.q(), 5);
        auto* const dq_there = take(dq, s.q(), 6);
        auto* const dk_there = take(dk, s.kv(), 7);
        auto* const dv_there = take(dv, s.kv(), 8);
        auto* const lse_there = take(lse, s.rows() * s.heads, 9);
        auto const work = [&] {
            attend_in_bf16(ctx, s.shape(), o_there, lse_there, q_there, k_there, v_there,
                           [&](attention_memory const& memory) {
                               if (!ctx.is_dry_run()) compute_there(forward_graph(s.shape()), memory);
                           });
            attention_gradients<float> const rows{.dq = dq_there,
                                                  .dk = dk_there,
                                                  .dv = dv_there,
                                                  .dout = dout_there,
                                                  .o = o_there,
                                                  .lse = lse_there,
                                                  .q = q_there,
                                                  .k = k_there,
                                                  .v = v_there};
            attend_back_in_bf16(ctx, s.shape(), rows, [&](attention_memory const& memory) {
                if (!ctx.is_dry_run()) compute_there(backward_graph(s.shape()), memory);
            });
        };
        ctx.set_dry_run(true);
        work();
        ctx.set_dry_run(false);
        auto const planned = ctx.workspace.peak();
        work();
        BOOST_TEST(ctx.workspace.peak() == planned);
        auto const want = by_blocks(s, m);
        auto const compare = [&](attention_part part, float const* there, double bound) {
            double const off = apart(copied(there, std::ssize(want.at(part))), want.at(part));
            BOOST_TEST(off < bound, "part " << static_cast<int>(part) << ": " << off);
        };
        compare(lse, lse_there, 1e-5);
        compare(o, o_there, 1.0 / 32);
        compare(dq, dq_there, 1.0 / 32);
        compare(dk, dk_there, 1.0 / 32);
        compare(dv, dv_there, 1.0 / 32);
    }
}
