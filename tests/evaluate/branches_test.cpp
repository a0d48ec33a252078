#include "calm/evaluate/detail/branches.hpp"

#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>

#include <algorithm>

#include "calm/evaluate/evaluate.hpp"

using namespace calm;

namespace {

constexpr configuration<> small(index_t K) {
    return {.autoencoder = {.vocab_size = 5,
                            .patch_size = K,
                            .hidden_size = 8,
                            .intermediate_size = 8,
                            .num_encoder_layers = 2,
                            .num_decoder_layers = 2,
                            .latent_size = 4},
            .hidden_size = 16,
            .intermediate_size = 16,
            .num_hidden_layers = 2,
            .num_attention_heads = 2,
            .num_key_value_heads = 1,
            .head = {.num_mlp_layers = 1, .noise_size = 4}};
}

// Types for Boost, which names a typed case by its type.
struct one_token {
    static constexpr configuration<> value = small(1);
};
struct two_tokens {
    static constexpr configuration<> value = small(2);
};
struct three_tokens {
    static constexpr configuration<> value = small(3);
};
using patch_sizes = boost::mpl::list<one_token, two_tokens, three_tokens>;

// A model with random weights, large enough that its samples differ.
template <model_configuration auto C> struct random_model {
    arena<> values{"values"};
    calm_model<C> model{5};
    random_model() {
        allocate(model, values, static_cast<arena<>*>(nullptr));
        allocate(model.ae_model, values, static_cast<arena<>*>(nullptr));
        std::uint64_t first = 0;
        auto const draw = [&](std::string const&, auto& p) {
            for (index_t i = 0; i < p.value.size(); ++i)
                p.value[i] = (p.starts == role::gain ? 1 : 0) + 0.4F * normal(key{.seed = 7}, first++);
        };
        model.visit(draw);
        model.visit_autoencoder(draw);
    }
};

std::vector<token_id> random_tokens(std::size_t n) {
    random_sequence random(key{.seed = 5, .stream = stream::story});
    std::vector<token_id> tokens(n);
    for (auto& id : tokens) id = static_cast<token_id>(random.below(5));
    return tokens;
}

// m patches that follow a text of whole patches, with noise at a place, computed without a cache.
template <class Model>
std::vector<token_id> following(context<>& ctx, Model& model, std::vector<token_id> const& text, index_t m,
                                row_rng const& place) {
    auto const patches = static_cast<index_t>(text.size()) / Model::K;
    vector_view<token_id const> const tokens(text.data(), extents<dyn>(patches * Model::K));
    auto const hidden = model.transformer.forward(ctx, tokens, patches).y;
    std::vector<token_id> out(static_cast<std::size_t>(m * Model::K));
    model.sample_patches(ctx, {out.data(), extents<dyn>(m * Model::K)}, rows(hidden, patches - 1, 1), m,
                         std::span(&place, 1));
    return out;
}

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(the_score_matches_texts_encoded_from_scratch, Size, patch_sizes) {
    constexpr index_t K = Size::value.autoencoder.patch_size;
    constexpr auto k = static_cast<std::size_t>(K);
    constexpr index_t P = 9;
    constexpr index_t N = 6;
    random_model<Size::value> r;
    context<> ctx(1, 2);
    auto const blocks = random_tokens(2 * P * K);
    constexpr auto S = static_cast<index_t>(brier_patches(k));
    brier_sequence sum;
    index_t branched = 0;
    for (index_t b = 0; b < 2; ++b) {
        std::span<token_id const> const block = std::span(blocks).subspan(static_cast<std::size_t>(b * P) * k, P * k);
        for (index_t p = 0; p + S < P; ++p) {  // the last positions have fewer than four tokens
            std::vector<token_id> joined;
            for (index_t s = 0; s < S; ++s) {
                std::vector<token_id> const text(block.begin(), block.begin() + (p + s + 1) * K);
                auto const drawn =
                    following(ctx, r.model, text, N, {{9, stream::evaluation, 0}, (b * (P - 1) + p + s) * N});
                joined.insert(joined.end(), drawn.begin(), drawn.end());
            }
            index_t number = (b * (P - 1) + p) * (S - 1) * N;
            auto const advance = [&](std::span<token_id const> prefix, std::span<token_id> out) {
                std::vector<token_id> text(block.begin(), block.begin() + (p + 1) * K);
                text.insert(text.end(), prefix.begin(), prefix.end());
                auto const m = static_cast<index_t>(out.size()) / K;
                auto const drawn = following(ctx, r.model, text, m, {{9, stream::evaluation, 1}, number});
                std::copy(drawn.begin(), drawn.end(), out.begin());
                number += m;
                ++branched;
            };
            auto const target = brier_target(block, static_cast<std::size_t>(p + 1) * k, k);
            sum.add(brier_of(count_hits(joined, k, target),
                             count_pairs(std::span(joined).first(static_cast<std::size_t>(N) * k), k, advance),
                             static_cast<std::size_t>(N)));
        }
    }
    BOOST_TEST(branched > 10);  // the test covers real branches
    special_tokens const none{-1, -1, -1};
    evaluation_settings settings{.block_tokens = P * K, .samples = N, .seed = 9};
    auto const e = evaluate_model(ctx, r.model, blocks, none, nullptr, settings);
    BOOST_TEST(e.positions == sum.count);
    BOOST_TEST(e.positions == 2 * (P - S));
    BOOST_TEST(e.skipped == 0);
    for (std::size_t n = 0; n < 4; ++n)
        BOOST_TEST((*e.brier)[n] == sum.sum[n] / static_cast<double>(sum.count), boost::test_tools::tolerance(1e-12));
    // Batch size and threads change nothing; a subset scores the requested number of positions.
    settings.batch = 1;
    context<> alone(3, 1);
    BOOST_TEST(*evaluate_model(alone, r.model, blocks, none, nullptr, settings).brier == *e.brier,
               boost::test_tools::per_element());
    settings.positions = 2 * (P - S) - 1;
    BOOST_TEST(evaluate_model(ctx, r.model, blocks, none, nullptr, settings).positions == settings.positions);
}
