// Layer blocks against the complex step, whole models against central differences in double, and invariants of a
// training step.
#include "calm/model/calm.hpp"
#include "support/gradient_check.hpp"
#include "support/small.hpp"

using namespace calm;
using namespace calm::test;

namespace {

constexpr index_t V = 13, K = 2, L = 4;

template <class T> using small_autoencoder = autoencoder<uneven.autoencoder, space<cpu, T>>;
template <class T> using small_model = calm_model<uneven, space<cpu, T>>;

// 13 or more of them contain every token of the vocabulary.
std::vector<token_id> some_tokens(index_t n) {
    std::vector<token_id> tokens;
    for (index_t i = 0; i < n; ++i) tokens.push_back(static_cast<token_id>((5 * i + i / V) % V));
    return tokens;
}
vector_view<token_id const> seen(std::vector<token_id> const& v) {
    return {v.data(), extents<dyn>(static_cast<index_t>(v.size()))};
}
template <index_t C, class T> matrix_view<T const, C> as_matrix(std::vector<T> const& v) {
    return {v.data(), extents<dyn, C>(static_cast<index_t>(v.size()) / C)};
}

// Centres the gains around one, so that derivatives are neither tiny nor huge.
void centre_gains(std::vector<flat_param<double>> const& params) {
    for (auto const& p : params)
        if (p.name.find("norm.weight") != std::string::npos || p.name.find("ln.weight") != std::string::npos)
            for (index_t i = 0; i < p.size; ++i) p.value[i] = 1 + 0.3 * p.value[i];
}

}  // namespace

namespace {

template <class T> using feeding = feed_forward_layer<6, 10, space<cpu, T>>;

// Sequences of P positions, as a layer of rows.
template <class T> struct transforming : transformer_block<12, 16, 2, 1, space<cpu, T>> {
    using block = transformer_block<12, 16, 2, 1, space<cpu, T>>;
    static constexpr index_t P = 5;
    auto forward(context<>& ctx, matrix_view<T const, 12> const& x) const {
        return block::forward(ctx, x, P, rope_theta);
    }
    void backward(context<>& ctx, typename block::saved_activations const& s, matrix_view<T const, 12> const& dy,
                  matrix_view<T, 12> const& dx) {
        block::backward(ctx, s, dy, dx, rope_theta);
    }
};

// The N samples (N D) of one position and the part of its hidden state (D), as one row of a layer.
template <class T> struct mixing {
    using space_type = space<cpu, T>;
    static constexpr index_t D = 6;
    static constexpr index_t N = 3;
    static constexpr index_t inputs = (N + 1) * D;
    static constexpr index_t outputs = N * D;
    energy_block<D, space<cpu, T>> block;
    struct saved_activations {
        typename energy_block<D, space<cpu, T>>::saved_activations inner;
        matrix_view<T, outputs> y;
    };
    saved_activations forward(context<>& ctx, matrix_view<T const, inputs> const& rows_of_both) const {
        index_t const R = rows_of_both.extent(0);
        auto const x = ctx.saved.template take<T>(extents<dyn, D>(R * N));
        auto const y = ctx.saved.template take<T>(extents<dyn, D>(R));
        for (index_t r = 0; r < R; ++r) {
            std::copy_n(rows_of_both.data() + r * inputs, N * D, x.data() + r * N * D);
            std::copy_n(rows_of_both.data() + r * inputs + N * D, D, y.data() + r * D);
        }
        auto const s = block.forward(ctx, x, y);
        return {s, reshape(s.y, extents<dyn, outputs>(R))};
    }
    void backward(context<>& ctx, saved_activations const& s, matrix_view<T const, outputs> const& dout,
                  matrix_view<T, inputs> const& dboth) {
        index_t const R = dout.extent(0);
        std::vector<T> dx(static_cast<std::size_t>(R * N * D), T(777));  // must be overwritten
        std::vector<T> dy(static_cast<std::size_t>(R * D), T(1));        // must be added to
        block.backward(ctx, s.inner, reshape(dout, extents<dyn, D>(R * N)), {dx.data(), extents<dyn, D>(R * N)},
                       {dy.data(), extents<dyn, D>(R)});
        for (index_t r = 0; r < R; ++r) {
            std::copy_n(dx.data() + r * N * D, N * D, dboth.data() + r * inputs);
            for (index_t d = 0; d < D; ++d)
                dboth.data()[r * inputs + N * D + d] = dy[static_cast<std::size_t>(r * D + d)] - T(1);
        }
    }
    template <class Visitor> void visit(Visitor& visitor) { block.visit(visitor); }
};

}  // namespace

// The order of checkpoints, and of what follows from it: sums over parameters and the shards of an optimizer.
BOOST_AUTO_TEST_CASE(blocks_name_their_norms_last) {
    auto const names_of = [](auto block) {
        std::vector<std::string> names;
        for (auto const& p : parameters_of(block)) names.push_back(p.name);
        return names;
    };
    std::vector<std::string> const fed{"mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight",
                                       "layernorm.weight"},
        attended{"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight",
                 "self_attn.o_proj.weight", "mlp.gate_proj.weight",    "mlp.up_proj.weight",
                 "mlp.down_proj.weight",    "input_layernorm.weight",  "post_attention_layernorm.weight"};
    BOOST_TEST(names_of(feeding<float>{}) == fed, boost::test_tools::per_element());
    BOOST_TEST(names_of(transforming<float>{}) == attended, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(blocks_of_layers_by_the_complex_step) {
    check_layer<feeding>(7);
    check_layer<transforming>(2 * transforming<double>::P);
    check_layer<mixing>(4);
}

BOOST_AUTO_TEST_CASE(the_whole_autoencoder_by_central_differences) {
    prepared<small_autoencoder<double>, double> p{small_autoencoder<double>(V)};
    centre_gains(p.params);
    constexpr index_t R = 5;
    auto const tokens = some_tokens(R * K);
    auto shown = tokens;
    shown[3] = 0;
    auto const eps = draws<double>(R * L, 1);
    auto scale = std::vector<double>(R * L, 1 / 0.85);
    scale[2] = scale[11] = 0;
    autoencoder_objective const objective{.kl_clamp = 0.05, .kl_weight = 0.1};
    auto const loss = [&] {
        return p.model
            .loss_and_gradient(p.ctx, seen(tokens), {seen(shown), as_matrix<L>(eps), as_matrix<L>(scale)}, objective)
            .loss;
    };
    loss();
    check_central_differences(p.params, loss);
    BOOST_TEST(p.ctx.saved.used() == 0U);
    BOOST_TEST(p.ctx.workspace.used() == 0U);
}

BOOST_AUTO_TEST_CASE(the_whole_language_model_by_central_differences) {
    prepared<small_model<double>, double> p{small_model<double>(V)};
    arena<> frozen("autoencoder");
    allocate(p.model.ae_model, frozen, static_cast<arena<>*>(nullptr));
    for (auto const& q : parameters<double>(p.model.ae_model))
        draw(std::span(q.value, static_cast<std::size_t>(q.size)), 7, 0.3);
    centre_gains(p.params);
    constexpr index_t B = 2, P = 4, R = B * (P - 1), N = 3, M = 4;
    auto const tokens = some_tokens(B * P * K);
    auto const noise = draws<double>(R * N * 6, 1, 0.3);
    auto const eps = draws<double>(M * R * L, 2);
    energy_objective const o{.samples = N, .targets = M, .beta = 1};
    auto const loss = [&] {
        arena_scope const saved(p.ctx.saved);
        return total_of(p.ctx, [&](auto const& mean) {
            p.model.loss_and_gradient(p.ctx, mean, p.model.prepare(p.ctx, tokens, P), o,
                                      small_model<double>::head_type::given_noise{
                                          as_matrix<6>(noise), {{eps.data(), extents<dyn, dyn, dyn>(M, R, L)}}});
        });
    };
    loss();
    check_central_differences(p.params, loss);
}

namespace {

// Loss, gradients and memory of one step in float.
struct step_outcome {
    double loss = 0;
    std::vector<std::vector<float>> gradients;
    std::size_t saved = 0;
    std::size_t workspace = 0;
};

step_outcome autoencoder_step(int threads, index_t patches, bool dry_run = false) {
    prepared<small_autoencoder<float>, float> p{small_autoencoder<float>(V), threads};
    auto const tokens = some_tokens(patches * K);
    p.ctx.set_dry_run(dry_run);
    step_outcome result;
    {
        arena_scope const scope(p.ctx.saved);
        auto const noise = p.model.draw(p.ctx, seen(tokens), 0.15);
        result.loss = p.model.loss_and_gradient(p.ctx, seen(tokens), noise, {}).loss;
    }
    for (auto const& q : p.params) result.gradients.push_back(copied(q.grad, q.size));
    result.saved = p.ctx.saved.peak();
    result.workspace = p.ctx.workspace.peak();
    return result;
}

step_outcome model_step(int threads, index_t sequences, bool dry_run = false) {
    prepared<small_model<float>, float> p{small_model<float>(V), threads};
    arena<> frozen("autoencoder");
    allocate(p.model.ae_model, frozen, static_cast<arena<>*>(nullptr));
    for (auto const& q : parameters<float>(p.model.ae_model))
        draw(std::span(q.value, static_cast<std::size_t>(q.size)), 7, 0.3);
    constexpr index_t P = 80;  // more than one attention tile
    auto const tokens = some_tokens(sequences * P * K);
    p.ctx.set_dry_run(dry_run);
    step_outcome result;
    result.loss = p.model.loss_and_gradient(p.ctx, seen(tokens), P, {.samples = 3, .targets = 5});
    for (auto const& q : p.params) result.gradients.push_back(copied(q.grad, q.size));
    result.saved = p.ctx.saved.peak();
    result.workspace = p.ctx.workspace.peak();
    return result;
}

template <class Step> void check_step(Step const& step) {
    auto const one = step(1, false);
    for (int threads : {2, 3}) {
        auto const more = step(threads, false);
        BOOST_TEST(more.loss == one.loss);
        BOOST_TEST((more.gradients == one.gradients), threads << " threads compute other bits than one");
    }
    for (int threads : {1, 2, 3}) {
        auto const dry = step(threads, true);
        BOOST_TEST(dry.saved == one.saved);
        BOOST_TEST(dry.workspace == step(threads, false).workspace, threads << " threads");
        for (auto const& g : dry.gradients)
            BOOST_TEST(std::count(g.begin(), g.end(), 0.0F) == static_cast<std::ptrdiff_t>(g.size()));
    }
    BOOST_TEST(one.saved > 0U);
    BOOST_TEST(std::isfinite(one.loss));
}

}  // namespace

BOOST_AUTO_TEST_CASE(threads_change_no_bit_and_a_dry_run_takes_the_memory_of_a_step) {
    check_step([](int threads, bool dry_run) { return autoencoder_step(threads, 300, dry_run); });
    check_step([](int threads, bool dry_run) { return model_step(threads, 3, dry_run); });
}
