// A model with weights in bf16 has, to the bit, the hidden states, texts and scores of the model in float whose
// matrices were rounded to bf16.
#include <bit>

#include "calm/model/autoregressive.hpp"
#include "calm/model/calm.hpp"
#include "calm/model/heads.hpp"
#include "calm/model/resident.hpp"
#include "calm/sample/generate.hpp"
#include "support/models.hpp"
#include "support/sentences.hpp"

using namespace calm;
using namespace calm::test;

namespace {

constexpr index_t V = 97;
constexpr special_tokens special{94, 95, 96};

// Random parameters, matrices rounded to nearest, ties to even, by another rule than the library's.
template <class Model> void draw_rounded(std::vector<any_parameter<space_of<Model>>> const& parameters, double size) {
    std::uint64_t first = 0;
    for (auto const& p : parameters) {
        normals(p.value.data(), p.value.size(), key{7, stream::initialise, 0}, first);
        first += static_cast<std::uint64_t>(p.value.size());
        for (float& x : p.value) {
            x = p.decays ? x * static_cast<float>(size) : p.starts == role::gain ? 1 + x * 0.1F : x * 0.1F;
            auto const bits = std::bit_cast<std::uint32_t>(x);
            if (p.decays) x = std::bit_cast<float>((bits + 0x7FFFU + (bits >> 16 & 1U)) & 0xFFFF0000U);
        }
    }
}

// The same model with weights in float and in bf16.
template <template <auto, class> class Model, auto C> struct twins {
    resident<Model<C, space<>>> in_float{V, held_for::use};
    resident<Model<C, bf16_weights>> in_bf16{V, held_for::use};
    context<> ctx{3, 2};

    // Matrices of so large a spread.
    explicit twins(double spread = 0.4) {
        using wide = Model<C, space<>>;
        draw_rounded<wide>(parameters_of(in_float.model), spread);
        copy_parameters(ctx, parameters_of(in_bf16.model), parameters_of(in_float.model));
        if constexpr (requires { in_float.model.ae_model; }) {
            draw_rounded<wide>(parameters_of(in_float.model.ae_model), spread);
            copy_parameters(ctx, frozen_parameters_of(in_bf16.model), frozen_parameters_of(in_float.model));
        }
    }

    // f(model, what) of either.
    template <class F> void expect_equal(char const* what, F const& f) {
        auto const want = f(in_float.model);
        auto const got = f(in_bf16.model);
        BOOST_TEST(want.size() > 0U);
        BOOST_TEST((want == got), what);
    }

    void check(auto const& sampler) {
        std::vector<token_id> read;
        for (token_id i = 0; i < 24; ++i) read.push_back(i * 31 % 94);
        expect_equal("hidden states", [&](auto const& model) {
            arena_scope const scope(ctx.saved);
            auto cache = model.make_cache(2, 16);
            index_t const each[] = {0, 1};
            auto const many = model.extend(ctx, std::span<token_id const>(read), cache, each);
            std::vector<float> all(many.begin(), many.end());
            std::span<token_id const> const next(read.data(), static_cast<std::size_t>(model.K));
            auto const one = model.extend(ctx, next, cache, std::span(each).first(1));
            all.insert(all.end(), one.begin(), one.end());
            return all;
        });
        std::vector<std::vector<token_id>> const prompts{{5, 17, 40, 3, 3, 88}, {1}, {9, 9, 9, 9}};
        expect_equal("texts", [&](auto const& model) {
            std::vector<token_id> all;
            for (auto const& made :
                 generate(ctx, model, std::span(prompts), special, {.sampler = sampler, .max_tokens = 20}))
                all.insert(all.end(), made.tokens.begin(), made.tokens.end());
            return all;
        });
    }
};

template <auto C, class Space> using language_model = calm_model<C, Space>;
template <auto C, class Space> using token_model = autoregressive_model<C, Space>;

constexpr autoregressive_configuration untied{.llama = llama_sizes_of(base)};
constexpr autoregressive_configuration tied{.llama = llama_sizes_of(base), .tie_word_embeddings = true};
constexpr auto reads_both = [] {
    auto c = base;
    c.input = input_kind::both;
    return c;
}();

}  // namespace

BOOST_AUTO_TEST_CASE(of_the_energy_head_at_both_temperatures) {
    twins<language_model, base> both;
    both.check(sampler::unchanged());
    both.check(sampler::batch(temperature::of(0.5), 20));
}

BOOST_AUTO_TEST_CASE(of_every_other_head_and_input) {
    twins<language_model, with_head(base, drafted{.num_mlp_layers = 2})>().check(sampler::unchanged());
    twins<language_model, with_head(base, drafted{.num_mlp_layers = 2, .own_table = 0})>().check(sampler::unchanged());
    twins<language_model, with_head(base, flow{.num_mlp_layers = 2})>(0.1).check(sampler::unchanged());
    twins<language_model, with_head(base, diffusion{.num_mlp_layers = 2})>(0.1).check(sampler::unchanged());
    twins<language_model, with_head(base, margin{})>().check(sampler::unchanged());
    twins<language_model, reads_both>().check(sampler::unchanged());
}

BOOST_AUTO_TEST_CASE(of_an_autoregressive_model) {
    twins<token_model, untied>().check(token_sampler{.T = 1});
    twins<token_model, tied>().check(token_sampler{.T = 0.5, .top_p = 0.9});
}

BOOST_AUTO_TEST_CASE(matrices_take_two_bytes_and_the_rest_stays) {
    resident<calm_model<base, bf16_weights>> own(V, held_for::use);
    std::size_t matrices = 0, others = 0;
    for (auto const& p : parameters_of(own.model))
        with_values(p, [&]<class T>(vector_view<T> const& values) {
            BOOST_TEST((std::is_same_v<T, bf16>) == (p.shape.size() > 1), p.name);
            (std::is_same_v<T, bf16> ? matrices : others) += static_cast<std::size_t>(values.size()) * sizeof(T);
        });
    BOOST_TEST(matrices > 10 * others);
    BOOST_CHECK_EXCEPTION((resident<calm_model<base, bf16_weights>>(V)), error,
                          says(errc::usage, "to be held for use, found held_for::training"));
}
