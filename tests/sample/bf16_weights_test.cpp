// With bf16 weights, hidden states, texts and scores must be bit-identical to a float model with matrices rounded to
// bf16, on the same backend. On a device, hidden states of more than sixteen rows need only be close.
#include "calm/emulated.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "calm/model/autoregressive.hpp"
#include "calm/model/calm.hpp"
#include "calm/model/heads.hpp"
#include "calm/model/owned_model.hpp"
#include "calm/sample/generate.hpp"
#include "support/models.hpp"
#include "support/sentences.hpp"

using namespace calm;
using namespace calm::test;

namespace {

constexpr index_t V = 97;
constexpr special_tokens special{94, 95, 96};

// Random parameters; matrices are rounded to nearest, ties to even, independently of the library.
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

// One model with float weights and with bf16 weights.
template <template <auto, class> class Model, auto C, class Backend> struct twins {
    owned_model<Model<C, space<Backend>>> in_float{V, model_mode::inference};
    owned_model<Model<C, bf16_weights_on<Backend>>> in_bf16{V, model_mode::inference};
    context<Backend> ctx{3, 2};

    // `spread` is the standard deviation of the matrices.
    explicit twins(double spread = 0.4) {
        using wide = Model<C, space<>>;
        owned_model<wide> drawn{V, model_mode::inference};
        draw_rounded<wide>(parameters_of(drawn.model), spread);
        copy_parameters(ctx, parameters_of(in_float.model), parameters_of(drawn.model));
        copy_parameters(ctx, parameters_of(in_bf16.model), parameters_of(in_float.model));
        if constexpr (requires { drawn.model.ae_model; }) {
            draw_rounded<wide>(parameters_of(drawn.model.ae_model), spread);
            copy_parameters(ctx, frozen_parameters_of(in_bf16.model), frozen_parameters_of(drawn.model));
            copy_parameters(ctx, frozen_parameters_of(in_float.model), frozen_parameters_of(in_bf16.model));
        }
    }

    // f(model) must be equal for both models; `what` names the result.
    template <class F> void expect_equal(char const* what, F const& f) {
        auto const want = f(in_float.model);
        auto const got = f(in_bf16.model);
        BOOST_TEST(want.size() > 0U);
        BOOST_TEST((want == got), what);
    }

    // f(model) must be equal on the host. It must be close on a device, which multiplies more than sixteen rows in
    // parts.
    template <class F> void expect_equal_or_near(char const* what, F const& f) {
        if constexpr (host_memory<Backend>) return expect_equal(what, f);
        auto const want = f(in_float.model), got = f(in_bf16.model);
        BOOST_TEST(want.size() > 0U);
        BOOST_TEST(std::equal(got.begin(), got.end(), want.begin(), want.end(),
                              [](float a, float b) { return std::abs(a - b) <= 1e-4F * std::max(1.0F, std::abs(b)); }),
                   what);
    }

    void check(auto const& sampler) {
        std::vector<token_id> read;
        for (token_id i = 0; i < 24; ++i) read.push_back(i * 31 % 94);
        expect_equal_or_near("hidden states", [&](auto const& model) {
            arena_scope const scope(ctx.saved);
            auto cache = model.make_cache(2, 16);
            index_t const each[] = {0, 1};
            std::vector<float> all, room;
            auto const add = [&](auto const& hidden) {
                auto const values = to_host(ctx, hidden, room);
                all.insert(all.end(), values.begin(), values.end());
            };
            add(model.extend(ctx, std::span<token_id const>(read), cache, each));
            std::span<token_id const> const next(read.data(), static_cast<std::size_t>(model.K));
            add(model.extend(ctx, next, cache, std::span(each).first(1)));
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

using backends = boost::mpl::list<cpu, emulated>;

BOOST_AUTO_TEST_CASE_TEMPLATE(of_the_energy_head_at_both_temperatures, on, backends) {
    twins<language_model, base, on> both;
    both.check(sampler::unchanged());
    both.check(sampler::batch(temperature::of(0.5), 20));
}

// All heads read weights alike. A device tests only a head that gathers rows of tables and a model with two inputs.
BOOST_AUTO_TEST_CASE_TEMPLATE(of_every_other_head_and_input, on, backends) {
    twins<language_model, with_head(base, drafted{.num_mlp_layers = 2}), on>().check(sampler::unchanged());
    twins<language_model, reads_both, on>().check(sampler::unchanged());
    if constexpr (host_memory<on>) {
        twins<language_model, with_head(base, drafted{.num_mlp_layers = 2, .own_table = 0}), on>().check(
            sampler::unchanged());
        twins<language_model, with_head(base, flow{.num_mlp_layers = 2}), on>(0.1).check(sampler::unchanged());
        twins<language_model, with_head(base, diffusion{.num_mlp_layers = 2}), on>(0.1).check(sampler::unchanged());
        twins<language_model, with_head(base, margin{}), on>().check(sampler::unchanged());
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(of_an_autoregressive_model, on, backends) {
    twins<token_model, untied, on>().check(token_sampler{.T = 1});
    twins<token_model, tied, on>().check(token_sampler{.T = 0.5, .top_p = 0.9});
}

BOOST_AUTO_TEST_CASE(matrices_take_two_bytes_and_the_rest_stays) {
    owned_model<calm_model<base, bf16_weights>> own(V, model_mode::inference);
    std::size_t matrices = 0, others = 0;
    for (auto const& p : parameters_of(own.model))
        with_values(p, [&]<class T>(vector_view<T> const& values) {
            BOOST_TEST((std::is_same_v<T, bf16>) == (p.shape.size() > 1), p.name);
            (std::is_same_v<T, bf16> ? matrices : others) += static_cast<std::size_t>(values.size()) * sizeof(T);
        });
    BOOST_TEST(matrices > 10 * others);
    BOOST_CHECK_EXCEPTION(
        (owned_model<calm_model<base, bf16_weights>>(V)), error,
        says(errc::usage, "expected model_mode::inference for a model with bf16 weights, found model_mode::training"));
}
