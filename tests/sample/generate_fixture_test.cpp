#include "calm/sample/generate.hpp"

#include <boost/mpl/list.hpp>

#include "support/models.hpp"

using namespace calm;
using namespace calm::test;
using variants = boost::mpl::list<base_variant, two_variant>;

BOOST_AUTO_TEST_CASE_TEMPLATE(generation_agrees_with_the_reference, variant, variants) {
    constexpr configuration C = variant::value;
    using model_type = calm_model<C>;
    using head = typename model_type::head_type;
    constexpr index_t K = model_type::K;
    fixture const f(variant_name<C>(), "generate");
    context<> ctx(1, 2);
    auto own = loaded_calm<C>(f);
    auto& model = own.model;

    auto const noises = f.floats("in/noises");
    index_t const steps = f.shape("in/noises")[0];
    auto const pad = static_cast<token_id>(f.size("pad"));
    int prompts = 0;
    for (auto const& name : f.names()) {
        constexpr std::string_view prefix = "in/prompt_";
        if (!name.starts_with(prefix)) continue;
        ++prompts;
        auto const length = name.substr(prefix.size());
        auto const prompt = f.integers<token_id>(name);
        for (bool const left : {true, false}) {
            generation_session<model_type> session(ctx, model, padded_prompt(prompt, K, pad, left), steps);
            std::vector<token_id> got;
            for (index_t i = 0; i < steps; ++i) {
                arena_scope const scope(ctx.saved);
                matrix_view<float const, head::S> const noise(noises.data() + i * head::S, extents<dyn, head::S>(1));
                std::vector<token_id> patch(static_cast<std::size_t>(K));
                model.ae_model.decode_tokens(ctx, {patch.data(), extents<dyn>(K)},
                                             model.generator.forward(ctx, session.hidden(), noise).y);
                got.insert(got.end(), patch.begin(), patch.end());
                session.append(patch);
            }
            auto const want = f.integers<token_id>((left ? "out/left_" : "out/right_") + length);
            BOOST_TEST(got == want, boost::test_tools::per_element());
        }
    }
    BOOST_TEST(prompts >= 4);
}
