// Scaled rotary angles, another eps and another head size: logits against a Llama in numpy, whose rotary angles are
// those of transformers 5.
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "calm/model/autoregressive.hpp"
#include "calm/model/owned_model.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

constexpr autoregressive_configuration with(rotary_scaling const& scaling) {
    return {.llama = {.hidden_size = 12,
                      .intermediate_size = 10,
                      .num_hidden_layers = 2,
                      .num_attention_heads = 2,
                      .num_key_value_heads = 1,
                      .head_dim = 8,
                      .rope_theta = 500,
                      .rope_scaling = scaling,
                      .rms_norm_eps = 0.01}};
}
constexpr index_t V = 11;

struct linear_scaling {
    static constexpr auto C = with({.type = rope_type::linear, .factor = 8});
    static std::vector<double> logits() {
        return {-0.507241731, 0.380265106,  -0.24886039, 0.114557756,  0.021078874, -0.156470045,
                0.290039162,  -0.420230846, 0.545529047, -0.664474698, 0.775682709};
    }
};
// One pair of a head keeps its frequency, one is between, two are divided.
struct llama3_scaling {
    static constexpr auto C = with({.type = rope_type::llama3, .factor = 8, .original_max_position_embeddings = 32});
    static std::vector<double> logits() {
        return {-0.568503254, 0.431348153,  -0.289170111, 0.143624756,  0.003593074, -0.150769064,
                0.296189386,  -0.438160656, 0.575029655,  -0.705202578, 0.827163593};
    }
};
struct no_scaling {
    static constexpr auto C = with({});
    static std::vector<double> logits() {
        return {-0.566520546, 0.427940645,  -0.284377483, 0.137502816,  0.010973037, -0.159321112,
                0.305813932,  -0.448745625, 0.586451788,  -0.717328867, 0.839852831};
    }
};
using scalings = boost::mpl::list<no_scaling, linear_scaling, llama3_scaling>;

// Element k of the n-th tensor by name is sin(1.3 k + n).
template <class Model> void set_weights(Model& model) {
    std::map<std::string, decltype(parameters_of(model).front().value)> by_name;
    for (auto const& p : parameters_of(model)) by_name.emplace(p.name, p.value);
    double n = 0;
    for (auto const& [name, values] : by_name) {
        double k = 0;
        for (auto& x : values) x = std::sin(1.3 * k++ + n);
        ++n;
    }
}

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(logits_match_the_formulas, scaling, scalings) {
    using model_type = autoregressive_model<scaling::C, space<cpu, double>>;
    owned_model<model_type> own(V, model_mode::inference);
    set_weights(own.model);
    context<> ctx(1, 2);
    std::vector<token_id> const tokens{3, 0, 7, 10, 7, 1};
    auto const P = static_cast<index_t>(tokens.size());
    auto const check = [&](auto const& hidden) {
        std::vector<double> found(static_cast<std::size_t>(V));
        own.model.logits(ctx, {found.data(), extents<dyn, dyn>(1, V)},
                         matrix_view<double const, model_type::D>(rows(hidden, hidden.extent(0) - 1, 1)));
        auto const want = scaling::logits();
        for (std::size_t i = 0; i < want.size(); ++i) BOOST_TEST(std::abs(found[i] - want[i]) < 1e-6, i);
    };
    check(own.model.forward(ctx, {tokens.data(), extents<dyn>(P)}, P).y);
    auto cache = own.model.make_cache(1, P);
    own.model.extend(ctx, std::span(tokens).first(4), cache, cache.all());
    check(own.model.extend(ctx, std::span(tokens).subspan(4), cache, cache.all()));
}
