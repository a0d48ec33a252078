// Counts the multiplications of models by replacing the product of `blocks` in double, and compares them with the FLOPs
// formulas.
#include "calm/model/flops.hpp"

#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>

#include "calm/tensor/ops/matmul.hpp"

namespace {
double multiplied = 0;  // floating-point operations
}

namespace calm::detail {
// Overload resolution prefers this function to the template.
inline void gemm(context<blocks> const& ctx, product<double> const& p) {
    if (!ctx.is_dry_run()) multiplied += flops::product(p.m, p.k, p.n);
    gemm<double>(ctx, p);
}
}  // namespace calm::detail

#include <set>

#include "calm/model/autoregressive.hpp"
#include "calm/model/calm.hpp"
#include "calm/model/heads.hpp"
#include "calm/model/owned_model.hpp"
#include "calm/train/detail/muon.hpp"
#include "support/small.hpp"

using namespace calm;
using namespace calm::test;

namespace {

using space_type = space<blocks, double>;

constexpr index_t V = 29, B = 2, P = 5, N = 3;

// A text in which most ids occur more than once.
std::vector<token_id> text_of(index_t n) {
    std::vector<token_id> tokens;
    for (index_t i = 0; i < n; ++i) tokens.push_back(static_cast<token_id>(i * i % V));
    return tokens;
}
double distinct(std::span<token_id const> tokens) {
    return static_cast<double>(std::set(tokens.begin(), tokens.end()).size());
}
// All positions but the first of each sequence.
std::vector<token_id> labels_of(std::span<token_id const> tokens) {
    std::vector<token_id> labels;
    auto const each = tokens.size() / B;
    for (std::size_t i = 0; i < tokens.size(); ++i)
        if (i % each >= each / P) labels.push_back(tokens[i]);
    return labels;
}

template <class Model> struct own_model {
    owned_model<Model> own{V};
    context<blocks> ctx{3};
    own_model() {
        initialise(ctx, own.model);
        if constexpr (requires { own.model.ae_model; }) initialise(ctx, own.model.ae_model);
    }
    // The floating-point operations of f(model, ctx).
    template <class F> double count(F const& f) {
        arena_scope const scope(ctx.saved);
        multiplied = 0;
        f(own.model, ctx);
        return multiplied;
    }
};

// The sizes of `uneven` with another head.
template <class Head> struct with {
    static constexpr configuration<Head> value{.autoencoder = uneven.autoencoder,
                                               .hidden_size = uneven.hidden_size,
                                               .intermediate_size = uneven.intermediate_size,
                                               .num_hidden_layers = uneven.num_hidden_layers,
                                               .num_attention_heads = uneven.num_attention_heads,
                                               .num_key_value_heads = uneven.num_key_value_heads,
                                               .head = {}};
};
using heads = boost::mpl::list<with<energy>, with<margin>, with<flow>, with<diffusion>, with<drafted>>;

template <class With> constexpr bool drafting = std::is_same_v<decltype(With::value.head), drafted>;

// got = `others` plus the encoding of `drafts` drafts, which share some tokens.
template <class C> void check_drafts(C const& c, double got, double others, double drafts) {
    double const token = flops::encoder(c.autoencoder, 1) - flops::encoder(c.autoencoder, 0);
    double const tokens = (got - others - drafts * flops::encoder(c.autoencoder, 0)) / token;
    BOOST_TEST(tokens == std::round(tokens), boost::test_tools::tolerance(1e-9));
    BOOST_TEST(tokens > 0.5);
    BOOST_TEST(tokens < std::min<double>(V, drafts * static_cast<double>(c.autoencoder.patch_size)) + 0.5);
}

}  // namespace

BOOST_AUTO_TEST_CASE(an_autoencoder_multiplies_as_many_flops_as_counted) {
    constexpr auto c = uneven.autoencoder;
    own_model<autoencoder<c, space_type>> one;
    auto const tokens = text_of(B * P * c.patch_size);
    double const patches = B * P;
    double const got =
        one.count([&](auto& model, auto& ctx) { model.loss_and_gradient(ctx, model.prepare(ctx, tokens, 0), {}); });
    BOOST_TEST(got == 3 * patches * (flops::encoder(c, distinct(tokens) / patches) + flops::decoder(c, V)));
}

// Drafts are random, so their number of unique tokens is not known in advance.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_language_model_multiplies_as_many_flops_as_counted, With, heads) {
    constexpr auto c = With::value;
    own_model<calm_model<c, space_type>> one;
    auto const tokens = text_of(B * P * c.autoencoder.patch_size);
    typename decltype(c.head)::objective o;
    o.samples = N;
    double const got =
        one.count([&](auto& model, auto& ctx) { model.loss_and_gradient(ctx, model.prepare(ctx, tokens, P), o); });
    double const positions = B * (P - 1);
    auto const head = flops::head(c, V);
    double const encoded = flops::encoder(c.autoencoder, distinct(labels_of(tokens)) / positions);
    double const want =
        positions * (encoded + 3 * (flops::backbone(c, 0) + head.shared + head.scored + N * head.trained));
    if constexpr (drafting<With>)
        check_drafts(c, got, want - positions * N * flops::encoder_at_once(c.autoencoder, V, 2048), positions * N);
    else
        BOOST_TEST(got == want);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_generated_patch_multiplies_as_many_flops_as_counted, With, heads) {
    constexpr auto c = With::value;
    own_model<calm_model<c, space_type>> one;
    auto const patch = text_of(c.autoencoder.patch_size);
    index_t const sequence = 0;
    auto cache = one.own.model.make_cache(1, 4);
    tensor<token_id, extents<dyn>, blocks> written(extents<dyn>(c.autoencoder.patch_size));
    double const got = one.count([&](auto& model, auto& ctx) {
        auto const hidden = model.extend(ctx, std::span<token_id const>(patch), cache, {&sequence, 1});
        row_rng const place{ctx.random(stream::head_noise), 0};
        model.sample_patches(ctx, written.view(), hidden, 1, std::span(&place, 1));
    });
    double const want = flops::generate(c, V, 0, 1) - (flops::backbone(c, 1) - flops::backbone(c, 0));
    if constexpr (drafting<With>)
        check_drafts(c, got, want - flops::encoder(c.autoencoder), 1);
    else
        BOOST_TEST(got == want);
}

BOOST_AUTO_TEST_CASE(an_autoregressive_model_multiplies_as_many_flops_as_counted) {
    constexpr llama_sizes c{.hidden_size = 12,
                            .intermediate_size = 16,
                            .num_hidden_layers = 2,
                            .num_attention_heads = 2,
                            .num_key_value_heads = 1};
    own_model<autoregressive_model<autoregressive_configuration{.llama = c}, space_type>> one;
    auto const tokens = text_of(B * P);
    double const got =
        one.count([&](auto& model, auto& ctx) { model.loss_and_gradient(ctx, model.prepare(ctx, tokens, P)); });
    BOOST_TEST(got == 3 * B * (P - 1) * flops::autoregressive(c, V, 0));
}

BOOST_AUTO_TEST_CASE(muon_multiplies_as_many_flops_as_counted) {
    for (auto const& [rows, columns] : {std::pair<index_t, index_t>(3, 7), {7, 3}, {5, 5}, {1, 4}}) {
        context<blocks> ctx(3);
        std::vector<double> numbers(static_cast<std::size_t>(rows * columns), 0.5);
        multiplied = 0;
        arena_scope const scope(ctx.workspace);
        static_cast<void>(orthogonalised(
            ctx, view<double, extents<dyn, dyn>, blocks>(numbers.data(), extents<dyn, dyn>(rows, columns))));
        BOOST_TEST(multiplied == flops::muon(rows, columns));
    }
}
