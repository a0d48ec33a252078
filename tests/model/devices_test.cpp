// One training step of both stages on every device agrees with the cpu in float within the fp32 tolerances. It is
// bit-identical for any number of threads and any thread order in a block.
#include "calm/model/calm.hpp"
#include "calm/train/optimizer.hpp"
#include "support/gradient_check.hpp"
#include "support/small.hpp"
#include "support/stepped.hpp"

using namespace calm;
using namespace calm::test;

namespace {

constexpr index_t V = 13, K = 2;

// Token ids in the memory of a backend.
template <class Backend> struct some_tokens {
    typename test_device<Backend, token_id>::vector ids;
    explicit some_tokens(index_t n) : ids(extents<dyn>(n)) {
        for (index_t i = 0; i < n; ++i) ids[i] = static_cast<token_id>((5 * i + i / V) % V);
    }
    operator vector_view<token_id const, dyn, Backend>() const { return ids.view(); }
};

struct step_outcome {
    std::vector<double> losses;  // and the gradient norm
    std::vector<std::vector<float>> gradients;
    std::vector<std::vector<float>> updated;  // parameters
    std::size_t saved = 0;
    std::size_t workspace = 0;
    bool operator==(step_outcome const&) const = default;
};

// loss(model, ctx) returns the losses of a batch and adds its gradients; one update follows.
template <class Backend, class Model, class Prepare, class Loss>
step_outcome step(int threads, thread_order order, bool dry_run, Prepare const& prepare, Loss const& loss) {
    prepared<Model, float, Backend> p(Model(V), threads);
    prepare(p);
    p.ctx.order = order;
    p.ctx.set_dry_run(dry_run);
    adamw optimizer(p.model);
    step_outcome result;
    result.losses = loss(p.model, p.ctx);
    for (auto const& q : p.params) result.gradients.push_back(copied(q.grad, q.size));
    result.losses.push_back(stepped(optimizer, p.ctx, 1e-2));
    for (auto const& q : p.params) result.updated.push_back(copied(q.value, q.size));
    result.saved = p.ctx.saved.peak();
    result.workspace = p.ctx.workspace.peak();
    return result;
}

struct autoencoder_step {
    template <class Backend> static step_outcome run(int threads, thread_order order, bool dry_run = false) {
        using model_type = autoencoder<uneven.autoencoder, space<Backend>>;
        some_tokens<Backend> const tokens(33 * K);
        return step<Backend, model_type>(
            threads, order, dry_run, [](auto&) {},
            [&](model_type& model, context<Backend>& ctx) {
                arena_scope const scope(ctx.saved);
                auto const noise = model.draw(ctx, tokens, 0.15);
                auto const all = model.loss_and_gradient(ctx, tokens, noise, {});
                return std::vector{all.loss, all.cross_entropy, all.kl, all.posterior_std};
            });
    }
};

struct language_model_step {
    template <class Backend> static step_outcome run(int threads, thread_order order, bool dry_run = false) {
        using model_type = calm_model<uneven, space<Backend>>;
        constexpr index_t P = 34;  // more than one attention tile
        some_tokens<Backend> const tokens(2 * P * K);
        arena<Backend> frozen("autoencoder");
        return step<Backend, model_type>(
            threads, order, dry_run,
            [&](auto& p) {
                allocate(p.model.ae_model, frozen, static_cast<arena<Backend>*>(nullptr));
                for (auto const& q : parameters<float>(p.model.ae_model))
                    draw(std::span(q.value, static_cast<std::size_t>(q.size)), 7, 0.3);
            },
            [&](model_type& model, context<Backend>& ctx) {
                return std::vector{model.loss_and_gradient(ctx, tokens, P, {.samples = 3, .targets = 5})};
            });
    }
};

using steps = boost::mpl::list<autoencoder_step, language_model_step>;

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(blocks_compute_as_packets_do, Step, steps) {
    using enum thread_order;
    auto const want = Step::template run<cpu>(2, ascending);
    auto const got = Step::template run<emulated>(1, ascending);
    BOOST_TEST(close(got.losses, want.losses, kind::output));
    BOOST_REQUIRE(got.gradients.size() == want.gradients.size());
    for (std::size_t i = 0; i < want.gradients.size(); ++i) {
        BOOST_TEST(close(got.gradients[i], want.gradients[i], kind::gradient), "gradient " << i);
        // The first step moves by the sign of the gradient, which is uncertain where the gradient is tiny.
        for (std::size_t j = 0; j < want.gradients[i].size(); ++j)
            if (std::abs(want.gradients[i][j]) > 1e-4F)
                BOOST_TEST(near(static_cast<double>(got.updated[i][j]), static_cast<double>(want.updated[i][j]), 1e-5));
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(order_changes_no_bit_and_a_dry_run_takes_the_memory_of_a_step, Step, steps) {
    using enum thread_order;
    auto const one = Step::template run<emulated>(1, ascending);
    BOOST_TEST((Step::template run<emulated>(2, descending) == one));
    BOOST_TEST((Step::template run<emulated>(3, permuted) == one));
    auto const dry = Step::template run<emulated>(1, ascending, true);
    BOOST_TEST(dry.saved == one.saved);
    BOOST_TEST(dry.workspace == one.workspace);
    for (auto const& g : dry.gradients)
        BOOST_TEST(std::count(g.begin(), g.end(), 0.0F) == static_cast<std::ptrdiff_t>(g.size()));
}
