// The backbone's input for each patch: tokens, latent vectors, or both.

#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>

#include <set>

#include "calm/evaluate/evaluate.hpp"
#include "calm/model/owned_model.hpp"
#include "calm/sample/generate.hpp"
#include "support/gradient_check.hpp"

using namespace calm;
using namespace calm::test;

namespace {

constexpr configuration<> small(input_kind input) {
    configuration<> c{.autoencoder = {.patch_size = 2, .hidden_size = 8, .intermediate_size = 12, .latent_size = 4},
                      .hidden_size = 12,
                      .intermediate_size = 16,
                      .num_hidden_layers = 2,
                      .num_attention_heads = 2,
                      .num_key_value_heads = 1,
                      .head = {.num_mlp_layers = 1, .noise_size = 6}};
    c.input = input;
    return c;
}
constexpr index_t V = 13, K = 2, P = 5, D = 12;

// Types for Boost, which names a typed case by its type.
struct of_tokens {
    static constexpr configuration<> value = small(input_kind::tokens);
};
struct of_latents {
    static constexpr configuration<> value = small(input_kind::latents);
};
struct of_both {
    static constexpr configuration<> value = small(input_kind::both);
};
using inputs = boost::mpl::list<of_tokens, of_latents, of_both>;

// A language model with random parameters, including its autoencoder.
template <class T, model_configuration auto C> struct drawn_model : prepared<calm_model<C, space<cpu, T>>, T> {
    arena<> frozen{"autoencoder"};
    drawn_model() : prepared<calm_model<C, space<cpu, T>>, T>(calm_model<C, space<cpu, T>>(V)) {
        allocate(this->model.ae_model, frozen, static_cast<arena<>*>(nullptr));
        for (auto const& q : parameters<T>(this->model.ae_model))
            draw(std::span(q.value, static_cast<std::size_t>(q.size)), 7, 0.4);
    }
};

std::vector<token_id> some_tokens(index_t n) {
    std::vector<token_id> tokens;
    for (index_t i = 0; i < n; ++i) tokens.push_back(static_cast<token_id>((5 * i + i / V) % V));
    return tokens;
}
vector_view<token_id const> seen(std::vector<token_id> const& v) {
    return {v.data(), extents<dyn>(static_cast<index_t>(v.size()))};
}

}  // namespace

// The hidden states of a text: of all patches at once, as in training, and patch by patch, as in generation.
BOOST_AUTO_TEST_CASE(a_backbone_reads_a_text_at_once_or_patch_by_patch) {
    constexpr configuration<> mine{.autoencoder = {.patch_size = 2},
                                   .hidden_size = 32,
                                   .intermediate_size = 64,
                                   .num_hidden_layers = 2,
                                   .num_attention_heads = 4,
                                   .num_key_value_heads = 2};
    constexpr index_t patches = 4;
    context<> ctx(1);                       // seed
    owned_model<backbone<mine>> own(1000);  // for 1000 token ids, with memory for gradients
    auto& model = own.model;
    initialise(ctx, model);
    std::vector<token_id> const text{12, 7, 999, 3, 7, 7, 50, 1};  // one sequence of 4 patches of 2 tokens
    vector_view<token_id const> const tokens(text.data(), extents<dyn>(2 * patches));

    auto const s = model.forward(ctx, tokens, patches);  // s.y: (4, 32), row p depends on patches 0 .. p
    auto cache = model.make_cache(1, patches);           // keys and values of one sequence
    for (index_t p = 0; p < patches; ++p) {
        auto const state = model.extend(ctx, row_ids<>(rows(tokens, 2 * p, 2)), cache, cache.all());  // (1, 32)
        BOOST_TEST(sum(ctx, square(state - rows(s.y, p, 1))) < 1e-10);
    }
    BOOST_TEST(cache.length(0) == patches);

    // The gradient of the states, here 1 each, becomes gradients of the parameters.
    tensor<float, extents<patches, 32>> dy;
    fill(ctx, dy.view(), 1.0F);
    model.backward(ctx, s, dy.view());
    for (auto const& p : parameters_of(model)) BOOST_TEST(sum(ctx, square(p.grad)) > 0, p.name);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_backbone_has_the_parameters_it_reads_with, Input, inputs) {
    drawn_model<float, Input::value> p;
    std::set<std::string> names;
    auto const add = [&](std::string const& name, auto&) { names.insert(name); };
    p.model.visit(add);
    bool const tokens = Input::value.input != input_kind::latents;
    bool const latents = Input::value.input != input_kind::tokens;
    BOOST_TEST(names.contains("transformer.embed_tokens.weight") == tokens);
    BOOST_TEST(names.contains("embed_proj.0.weight") == tokens);
    BOOST_TEST(names.contains("latent_proj.0.weight") == latents);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(its_gradients_match_central_differences, Input, inputs) {
    drawn_model<double, Input::value> p;
    auto const tokens = some_tokens(2 * P * K);
    auto const dy = draws<double>(2 * P * D, 3);
    auto const forward = [&] {
        return p.model.transformer.forward(p.ctx, p.model.backbone_input(p.ctx, seen(tokens)), P);
    };
    {
        arena_scope const saved(p.ctx.saved);
        p.model.transformer.backward(p.ctx, forward(), {dy.data(), extents<dyn, D>(2 * P)});
    }
    for (auto const& q : p.params) {
        if (q.name.starts_with("mlp_generator")) continue;
        auto const gradient = copied(q.grad, q.size);
        check_by_differences(
            q.name, gradient.data(), q.size,
            [&](index_t i) {
                double& element = q.value[i];
                double const before = element;
                auto const at = [&](double step) {
                    element = before + step;
                    arena_scope const saved(p.ctx.saved);
                    auto const y = forward().y;
                    double sum = 0;
                    for (index_t j = 0; j < y.size(); ++j) sum += y[j] * dy[static_cast<std::size_t>(j)];
                    return sum;
                };
                constexpr double h = 1e-3;
                double const slope = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
                element = before;
                return slope;
            },
            3, 1e-5);
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(patch_by_patch_is_all_at_once, Input, inputs) {
    drawn_model<double, Input::value> p;
    auto const tokens = some_tokens(P * K);
    auto const& model = p.model;
    auto const all = model.transformer.forward(p.ctx, model.backbone_input(p.ctx, seen(tokens)), P).y;
    auto cache = model.transformer.make_cache(1, P);
    for (index_t i = 0; i < P; ++i) {
        vector_view<token_id const> const patch(tokens.data() + i * K, extents<dyn>(K));
        auto const one = model.transformer.extend(p.ctx, model.backbone_input(p.ctx, patch), cache, cache.all());
        for (index_t d = 0; d < D; ++d) BOOST_TEST(near(one[d], all[i * D + d], 1e-12));
    }
    // The last patch is visible to the last position only.
    auto other = tokens;
    other.back() = (other.back() + 1) % V;
    auto const changed = model.transformer.forward(p.ctx, model.backbone_input(p.ctx, seen(other)), P).y;
    for (index_t d = 0; d < D; ++d) {
        BOOST_TEST(changed[(P - 2) * D + d] == all[(P - 2) * D + d]);
        BOOST_TEST(changed[(P - 1) * D + d] != all[(P - 1) * D + d]);
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_step_an_evaluation_and_a_text, Input, inputs) {
    drawn_model<float, Input::value> p;
    auto const tokens = some_tokens(4 * P * K);
    energy_objective const objective{.samples = 4, .targets = 4};
    p.clear_gradients();
    BOOST_TEST(std::isfinite(p.model.loss_and_gradient(p.ctx, seen(tokens), P, objective)));
    for (auto const& q : parameters_of(p.model)) BOOST_TEST(*q.received_gradients > 0, q.name);
    evaluation_settings const settings{.block_tokens = P * K, .samples = 3};
    auto const e = evaluate_model(p.ctx, p.model, tokens, {-1, -1, -1}, nullptr, settings, objective);
    BOOST_TEST(e.positions == 4 * (P - 2));
    generation_settings how;
    how.max_tokens = 7;
    auto const made = generate(p.ctx, p.model, std::vector<token_id>{1, 2}, {-1, -1, -1}, how);
    BOOST_TEST(made.tokens.size() == 7u);
}
