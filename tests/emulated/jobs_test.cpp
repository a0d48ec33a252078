// Whole jobs on the emulated device: it trains, evaluates and generates like the cpu, and resumes the cpu's runs.
#include "calm/emulated.hpp"

#include <set>

#include "calm/evaluate/evaluate.hpp"
#include "calm/language_model.hpp"
#include "calm/model/owned_model.hpp"
#include "calm/sample/generate.hpp"
#include "calm/train/session.hpp"
#include "support/close.hpp"
#include "support/models.hpp"
#include "support/sanitized.hpp"
#include "support/small.hpp"
#include "support/temporary_folder.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

constexpr index_t V = 11;
inline constexpr autoregressive_configuration small_ar{.llama = llama_sizes_of(small), .vocab_size = V};
constexpr special_tokens special{V - 3, V - 2, V - 1};

template <class Backend> using autoencoder_on = autoencoder<small.autoencoder, space<Backend>>;
template <class Backend> using calm_on = calm_model<small, space<Backend>>;
template <class Backend> using autoregressive_on = autoregressive_model<small_ar, space<Backend>>;

// Every token determines the next.
struct counting_source {
    token_id next = 0;
    void operator()(std::span<token_id> tokens) {
        for (auto& t : tokens) t = std::exchange(next, static_cast<token_id>((next * 2 + 1) % V));
    }
};

// A model on a backend with the cpu's initial weights.
template <template <class> class Model, class Backend> owned_model<Model<Backend>> started() {
    owned_model<Model<cpu>> here(V);
    context<> const host(3, 1);
    initialise(host, here.model);
    if constexpr (requires { here.model.ae_model; }) initialise(host, here.model.ae_model);
    owned_model<Model<Backend>> own(V);
    context<Backend> const ctx(3, 1);
    copy_parameters(ctx, own.model, here.model);
    return own;
}

// All weights, on the host.
template <template <class> class Model, class Backend> std::vector<float> brought(Model<Backend>& model) {
    owned_model<Model<cpu>> here(V);
    context<Backend> const ctx(3, 1);
    copy_parameters(ctx, here.model, model);
    return weights_of(here.model);
}

struct outcome {
    std::vector<double> losses;
    std::vector<float> weights;
    bool operator==(outcome const&) const = default;
};

// The state of a run that a checkpoint keeps.
struct kept_run {
    std::vector<float> weights;
    training_state state;
    std::vector<std::vector<std::byte>> optimizer_state;
    counting_source source;  // positioned after the tokens that were read
};

constexpr index_t steps_of_run = 10;

// A longer run that syncs every log_every steps.
void log_steps_together(training_recipe& r, index_t log_every) {
    if (log_every == 1) return;
    r.steps = 5 * log_every;
    r.log_every = log_every;
    r.evaluate_every = r.save_every = r.steps;
}

struct autoencoder_job {
    template <class Backend> using model = autoencoder_on<Backend>;
    static constexpr index_t micro_batches = 2, uploads = micro_batches + 2, copies_to_log = 2;
    static void run(auto& ctx, auto& own, counting_source& source, training_callbacks const& callbacks,
                    index_t log_every = 1) {
        autoencoder_recipe r;
        r.steps = steps_of_run;
        r.accumulation = micro_batches;
        r.batch_tokens = 64;
        r.learning_rate = 3e-3;
        r.warmup = 2;
        r.random_patches = 0.2;
        log_steps_together(r, log_every);
        train_autoencoder(ctx, own, source, r, callbacks);
    }
};
struct calm_job {
    template <class Backend> using model = calm_on<Backend>;
    static constexpr index_t micro_batches = 1, uploads = 3, copies_to_log = 1;
    static void run(auto& ctx, auto& own, counting_source& source, training_callbacks const& callbacks,
                    index_t log_every = 1) {
        calm_recipe<energy_objective> r;
        r.steps = steps_of_run;
        r.sequences = 4;
        r.block_tokens = 16;
        r.warmup = 2;
        r.learning_rate = 1e-3;
        r.optimizer.muon = 0;
        r.objective = {.samples = 3, .targets = 4};
        log_steps_together(r, log_every);
        train_calm(ctx, own, source, r, callbacks);
    }
};
struct autoregressive_job {
    template <class Backend> using model = autoregressive_on<Backend>;
    static constexpr index_t micro_batches = 1, uploads = 2, copies_to_log = 1;  // no random draws
    static void run(auto& ctx, auto& own, counting_source& source, training_callbacks const& callbacks,
                    index_t log_every = 1) {
        autoregressive_recipe r;
        r.steps = steps_of_run;
        r.sequences = 4;
        r.block_tokens = 8;
        r.warmup = 2;
        r.level = {.patch = 2, .share = 0.5};
        r.learning_rate = 1e-3;
        r.optimizer.muon = 1;
        log_steps_together(r, log_every);
        train_autoregressive(ctx, own, source, r, callbacks);
    }
};
using jobs = boost::mpl::list<autoencoder_job, calm_job, autoregressive_job>;

// Writes a list of weights to the parameters of a model, through a model on the host.
template <template <class> class Model, class Backend>
void put(std::vector<float> const& weights, Model<Backend>& model) {
    auto here = started<Model, cpu>();
    context<Backend> const ctx(3, 1);
    auto from = weights.begin();
    for (auto const& p : parameters_of(here.model))
        for (auto& x : p.value) x = *from++;
    copy_parameters(ctx, model, here.model);
}

template <class Job, class Backend>
outcome trained(int threads, thread_order order = thread_order::ascending, bool by_graphs = true) {
    auto own = started<Job::template model, Backend>();
    context<Backend> ctx(3, threads);
    ctx.order = order;
    if constexpr (device_memory<Backend>) ctx.uses_graphs = by_graphs;
    outcome result;
    training_callbacks callbacks;
    callbacks.step = [&](progress const& now) { result.losses.push_back(now.loss); };
    counting_source source;
    Job::run(ctx, own.model, source, callbacks);
    result.weights = brought<Job::template model, Backend>(own.model);
    return result;
}

// The state after the first steps of a run.
template <class Job, class Backend> kept_run begun(index_t steps) {
    auto own = started<Job::template model, Backend>();
    context<Backend> ctx(3, 1);
    kept_run kept;
    index_t done = 0;
    training_callbacks callbacks;
    callbacks.step = [&](progress const&) { ++done; };
    callbacks.stop = [&] { return done == steps; };
    callbacks.checkpoint = [&](training_state const& state, state_after) {
        kept.state = state;
        kept.optimizer_state.clear();
        for (auto const& m : state.optimizer_state) kept.optimizer_state.emplace_back(m.bytes.begin(), m.bytes.end());
    };
    Job::run(ctx, own.model, kept.source, callbacks);
    kept.weights = brought<Job::template model, Backend>(own.model);
    return kept;
}

// The rest of the run.
template <class Job, class Backend> outcome ended(kept_run const& kept) {
    auto own = started<Job::template model, Backend>();
    put<Job::template model, Backend>(kept.weights, own.model);
    context<Backend> ctx(3, 1);
    outcome result;
    training_callbacks callbacks;
    callbacks.resume = [&](training_state& state) {
        auto const optimizer_state = state.optimizer_state;
        state = kept.state;
        state.optimizer_state = optimizer_state;
        for (std::size_t i = 0; i < optimizer_state.size(); ++i)
            std::copy(kept.optimizer_state[i].begin(), kept.optimizer_state[i].end(), optimizer_state[i].bytes.begin());
    };
    callbacks.step = [&](progress const& now) { result.losses.push_back(now.loss); };
    auto source = kept.source;
    Job::run(ctx, own.model, source, callbacks);
    result.weights = brought<Job::template model, Backend>(own.model);
    return result;
}

template <class Model, class Rule>
auto scores(context<typename Model::backend>& ctx, Model& model, std::span<token_id const> text, Rule const& rule) {
    settings_of_evaluation<rule_of<Model>> settings;
    settings.block_tokens = 16;
    settings.samples = 4;
    settings.sampler = rule;
    return evaluate_model(ctx, model, text, special, nullptr, settings);
}

template <class Model, class Rule>
std::vector<std::vector<token_id>> texts(context<typename Model::backend>& ctx, Model& model, Rule const& rule) {
    settings_of_generation<rule_of<Model>> settings;
    settings.sampler = rule;
    settings.max_tokens = 14;
    settings.at_once = 2;
    std::vector<std::vector<token_id>> const prompts{{1, 3, 7}, {2}, {4, 4, 4, 4}};
    std::vector<std::vector<token_id>> all;
    for (auto& text : generate(ctx, model, std::span(prompts), special, settings)) all.push_back(text.tokens);
    return all;
}

// A cpu model with weights wide enough that hidden states and noise decide the tokens.
template <template <class> class Model> owned_model<Model<cpu>> wide() {
    owned_model<Model<cpu>> own(V);
    std::uint64_t seed = 50;
    for (auto const& p : parameters_of(own.model)) draw(p.value, seed++, 0.6);
    if constexpr (requires { own.model.ae_model; })
        for (auto const& p : frozen_parameters_of(own.model)) draw(p.value, seed++, 0.6);
    return own;
}

// Unwritten tokens would be 0.
bool have_other_tokens_than_0(std::vector<std::vector<token_id>> const& texts) {
    std::set<token_id> all;
    for (auto const& text : texts) all.insert(text.begin(), text.end());
    all.erase(0);
    return !all.empty();
}

std::vector<token_id> some_text() {
    std::vector<token_id> text(16 * 6);
    counting_source{}(text);
    return text;
}

// One model on both devices, with its scores and texts there.
template <template <class> class Model> struct on_both {
    owned_model<Model<cpu>> here = wide<Model>();
    owned_model<Model<emulated>> there{V};
    context<> host{1, 1};
    context<emulated> device{1, 2};

    on_both() { copy_parameters(device, there.model, here.model); }
    void check_scores(auto const& rule, auto const& compare) {
        auto const text = some_text();
        auto const want = scores(host, here.model, text, rule);
        auto const got = scores(device, there.model, text, rule);
        BOOST_REQUIRE((want.brier && got.brier));
        BOOST_TEST(close(std::span(*got.brier), std::span(*want.brier), kind::output));
        compare(got, want);
    }
    // Compares the texts of every rule. All other rules must differ from `unchanged`, so that confusing rules would
    // show.
    void check_texts(auto const& unchanged, auto const&... others) {
        auto const as_it_is = texts(host, here.model, unchanged);
        BOOST_TEST(have_other_tokens_than_0(as_it_is));
        BOOST_CHECK(texts(device, there.model, unchanged) == as_it_is);
        auto const check = [&](auto const& rule) {
            auto const written = texts(host, here.model, rule);
            BOOST_CHECK(written != as_it_is);
            BOOST_CHECK(texts(device, there.model, rule) == written);
        };
        (check(others), ...);
    }
};

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(it_trains_as_the_cpu_does, Job, jobs) {
    using enum thread_order;
    auto const want = trained<Job, cpu>(1);
    auto const got = trained<Job, emulated>(1);
    BOOST_REQUIRE(std::ssize(want.losses) == steps_of_run);
    BOOST_TEST(close(got.losses, want.losses, kind::loss_of_run));
    BOOST_TEST(close(got.weights, want.weights, kind::weight_of_run));
    BOOST_CHECK((trained<Job, emulated>(2, descending) == got));
    if (calm::test::is_sanitized) return;  // other thread orders use the same memory
    BOOST_CHECK((trained<Job, emulated>(1, permuted) == got));
    BOOST_CHECK((trained<Job, emulated>(1, ascending, false) == got));
}

namespace {

// The weights after one step of four micro-batches, with an eps and a learning rate that make the gradient visible. The
// gradient is summed by the training loop, by hand as a tree of separate gradients, or sequentially.
enum class added { by_the_loop, by_hand, in_turn };
template <class Backend> std::vector<float> after_micro_batches(added how) {
    constexpr index_t n = 4;
    auto own = started<calm_on, Backend>();
    auto& model = own.model;
    context<Backend> ctx(3, 2);
    calm_recipe<energy_objective> r;
    r.steps = 1;
    r.accumulation = n;
    r.sequences = 8;
    r.block_tokens = 16;
    r.learning_rate = 1;
    r.warmup = 0;
    r.optimizer = {.eps = 1, .weight_decay = 0, .clip = 0};
    r.objective = {.samples = 3, .targets = 4};
    counting_source source;
    if (how == added::by_the_loop) {
        train_calm(ctx, model, source, r);
        return brought<calm_on, Backend>(model);
    }
    auto const parameters = parameters_of(model);
    adamw optimizer(parameters, r.optimizer);
    std::vector<std::vector<float>> gradients(n);
    std::vector<float> room;
    for (index_t i = 0; i < n; ++i) {
        arena_scope const scope(ctx.workspace);
        ctx.micro_batch = i;
        std::vector<token_id> ids(2 * 16);
        source(ids);
        model.loss_and_gradient(ctx, upload(ctx, std::span<token_id const>(ids)), 8, r.objective, i * 2 * 7, 1.0 / n);
        for (auto const& p : parameters) {
            auto const g = to_host(ctx, p.grad, room);
            gradients[static_cast<std::size_t>(i)].insert(gradients[static_cast<std::size_t>(i)].end(), g.begin(),
                                                          g.end());
        }
        if (how == added::by_hand) optimizer.discard();
    }
    ctx.micro_batch = 0;
    auto const& [a, b, c, d] = std::tie(gradients[0], gradients[1], gradients[2], gradients[3]);
    std::vector<float> sum;
    for (std::size_t i = 0; i < a.size(); ++i) sum.push_back((a[i] + b[i]) + (c[i] + d[i]));
    index_t first = 0;
    for (auto const& p : parameters) {
        extents<dyn> const shape(p.value.size());
        vector_view<float const> const here(sum.data() + first, shape);
        if (how == added::by_hand) {
            if constexpr (host_memory<Backend>)
                std::copy(here.begin(), here.end(), p.grad.data());
            else
                copy(ctx, p.grad, here);
        }
        *p.received_gradients = 1;
        first += p.value.size();
    }
    optimizer.step(ctx, r.learning_rate);
    return brought<calm_on, Backend>(model);
}
using backends = boost::mpl::list<cpu, emulated>;

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(gradients_of_micro_batches_add_up_in_a_tree, Backend, backends) {
    auto const together = after_micro_batches<Backend>(added::by_the_loop);
    BOOST_CHECK(together == after_micro_batches<Backend>(added::by_hand));
    BOOST_CHECK(together != after_micro_batches<Backend>(added::in_turn));
}

// A run resumes on either device: bit-identical on one device, within fp32 tolerances after a change of device.
BOOST_AUTO_TEST_CASE_TEMPLATE(runs_are_exchanged_with_the_cpu, Job, jobs) {
    constexpr index_t before = 4;
    auto const here = trained<Job, cpu>(1);
    auto const kept_here = begun<Job, cpu>(before);
    auto const kept_there = begun<Job, emulated>(before);
    if (!calm::test::is_sanitized) {
        BOOST_CHECK((ended<Job, emulated>(kept_there).weights == trained<Job, emulated>(1).weights));
        BOOST_CHECK((ended<Job, cpu>(kept_here).weights == here.weights));
    }
    auto const as_here = [&](outcome const& exchanged) {
        BOOST_TEST(close(exchanged.losses, std::span(here.losses).subspan(before), kind::loss_of_run));
        BOOST_TEST(close(exchanged.weights, here.weights, kind::weight_of_run));
    };
    as_here(ended<Job, emulated>(kept_here));
    as_here(ended<Job, cpu>(kept_there));
}

// After the first steps nothing is allocated, and all steps enqueue equal work, because shapes do not depend on ids.
// Uploads are the ids of each micro-batch, in one copy, and the numbers of the step and update. The host waits only
// where steps are reported, for their losses and norms. Each micro-batch and each update is one graph.
BOOST_AUTO_TEST_CASE_TEMPLATE(steps_allocate_nothing_and_wait_only_for_reports, Job, jobs) {
    constexpr index_t together = 4;
    auto own = started<Job::template model, emulated>();
    context<emulated> ctx(3, 1);
    std::vector<device_counts> after;
    training_callbacks callbacks;
    callbacks.step = [&](progress const& now) {
        if ((now.step + 1) % together == 0) after.push_back(ctx.counts());
    };
    counting_source source;
    Job::run(ctx, own.model, source, callbacks, together);
    BOOST_REQUIRE(after.size() == 5U);
    auto const one = after[3] - after[2], next = after[4] - after[3];  // within one phase
    BOOST_TEST_MESSAGE(one.launches << " launches, " << one.uploads << " uploads, " << one.waits << " waits");
    BOOST_TEST(one.allocations == 0);
    BOOST_TEST(one.graphs == together * (Job::micro_batches + 1));
    BOOST_TEST(one.launches <= together * (1 + 5 * Job::micro_batches));  // draws, losses, sums of micro-batches
    BOOST_TEST(one.uploads == together * Job::uploads);
    BOOST_TEST(one.waits == Job::copies_to_log);  // outcomes; for an autoencoder also the parts of its losses
    BOOST_CHECK(one == next);
}

BOOST_AUTO_TEST_CASE(a_calm_is_evaluated_and_writes_as_on_the_cpu) {
    on_both<calm_on> model;
    auto const half = temperature::of(0.5);
    for (auto const& rule : {sampler::unchanged(), sampler::batch(half, 12), sampler::noise(half)})
        model.check_scores(rule, [](evaluation const& got, evaluation const& want) {
            BOOST_TEST(*got.token_accuracy == *want.token_accuracy);
            BOOST_TEST(*got.token_accuracy_posterior == *want.token_accuracy_posterior);
        });
    model.check_texts(sampler::unchanged(), sampler::adaptive(half, 12), sampler::batch(half, 12), sampler::exact(half),
                      sampler::noise(half));
}

BOOST_AUTO_TEST_CASE(an_autoregressive_model_is_evaluated_and_writes_as_on_the_cpu) {
    on_both<autoregressive_on> model;
    token_sampler const colder{.T = 0.3, .top_k = 6, .top_p = 0.9};
    for (auto const& rule : {token_sampler::unchanged(), colder})
        model.check_scores(rule, [](evaluation const& got, evaluation const& want) {
            BOOST_TEST(*got.cross_entropy == *want.cross_entropy, boost::test_tools::tolerance(1e-6));
        });
    model.check_texts(token_sampler::unchanged(), token_sampler{.T = 0}, token_sampler{.T = 0.3},
                      token_sampler{.top_k = 2}, token_sampler{.top_p = 0.5}, colder);
}

namespace {
// Texts with graphs equal texts without, for every rule. Each patch takes at least `graphs` graphs. Recapture is needed
// only where a cache grows or a text ends, so launches stay below `besides` times the launches without graphs.
template <template <class> class Model> void check_graphs(auto const& rule, double graphs, double besides) {
    on_both<Model> model;
    settings_of_generation<rule_of<Model<emulated>>> settings;
    settings.sampler = rule;
    settings.max_tokens = 200;  // a cache starts with room for 64 positions
    settings.at_once = 2;
    std::vector<std::vector<token_id>> const prompts{{1, 3, 7}, {2}, {4, 4, 4, 4}};
    auto const written = [&](bool by_graphs) {
        model.device.uses_graphs = by_graphs;
        auto const before = model.device.counts();
        std::vector<std::vector<token_id>> all;
        for (auto& text : generate(model.device, model.there.model, std::span(prompts), {0, -1, 0}, settings))
            all.push_back(text.tokens);
        return std::pair(all, model.device.counts() - before);
    };
    auto const [texts, by_graphs] = written(true);
    auto const [same, by_kernels] = written(false);
    BOOST_REQUIRE(std::ssize(texts.at(2)) == settings.max_tokens);
    BOOST_CHECK(texts == same);
    BOOST_TEST(by_kernels.graphs == 0);
    constexpr double patches = 2.0 * 200 / Model<emulated>::K;  // two texts at once, then one
    BOOST_TEST_MESSAGE(by_graphs.graphs << " graphs, " << by_graphs.launches << " launches of " << by_kernels.launches);
    BOOST_TEST(static_cast<double>(by_graphs.graphs) >= graphs * 0.95 * patches);
    BOOST_TEST(static_cast<double>(by_graphs.launches) < besides * static_cast<double>(by_kernels.launches));
}
}  // namespace

BOOST_AUTO_TEST_CASE(texts_do_not_depend_on_graphs) {
    auto const half = temperature::of(0.5);
    check_graphs<autoregressive_on>(token_sampler::unchanged(), 1, 0.2);
    check_graphs<calm_on>(sampler::unchanged(), 2, 0.05);
    check_graphs<calm_on>(sampler::batch(half, 12), 2, 0.5);
    if (calm::test::is_sanitized) return;  // slow there
    check_graphs<calm_on>(sampler::adaptive(half, 12), 2, 0.5);
}

// Patches for two scoring rounds, the second incomplete.
BOOST_AUTO_TEST_CASE(an_autoencoder_is_evaluated_as_on_the_cpu) {
    on_both<autoencoder_on> model;
    std::vector<token_id> text(700 * small.autoencoder.patch_size);
    random_sequence random({5, stream::evaluation, 0});
    for (auto& t : text) t = static_cast<token_id>(random.below(V));
    auto const want = evaluate_autoencoder(model.host, model.here.model, text, special.pad, 7);
    auto const got = evaluate_autoencoder(model.device, model.there.model, text, special.pad, 7);
    BOOST_TEST((want.token_accuracy > 0 && want.token_accuracy_posterior > 0));
    BOOST_TEST(want.token_accuracy != want.token_accuracy_posterior);
    BOOST_TEST(got.token_accuracy == want.token_accuracy);
    BOOST_TEST(got.token_accuracy_posterior == want.token_accuracy_posterior);
    BOOST_TEST(got.posterior_std == want.posterior_std, boost::test_tools::tolerance(1e-6));
    BOOST_TEST(got.cross_entropy == want.cross_entropy, boost::test_tools::tolerance(1e-6));
    BOOST_TEST(got.patches == want.patches);
}

// A model saved on the device continues there with the same text. A model that the cpu saved continues on the device
// with the cpu's text.
BOOST_AUTO_TEST_CASE(a_language_model_trains_and_loads_as_on_the_cpu) {
    static_assert(std::is_nothrow_move_constructible_v<language_model<small, emulated>>);
    temporary_folder const folder;
    generation_options const few{.temperature = 1, .max_tokens = 12};
    auto const trained_on = [&]<class Backend>(context<Backend> const&, char const* name) {
        language_model<small, Backend> model(stories(40), {.vocabulary = 280, .threads = 1});
        std::vector<double> losses;
        model.train(
            {.autoencoder_steps = 2, .steps = 2, .log = [&](auto const& now) { losses.push_back(now.now.loss); }});
        model.save(folder.path(name));
        return std::pair(losses, model.generate("Mia was", few).tokens);
    };
    auto const [losses, text] = trained_on(context<>(), "here");
    auto const [losses_there, text_there] = trained_on(context<emulated>(), "there");
    BOOST_REQUIRE(losses.size() == 4U);
    BOOST_TEST(close(losses_there, losses, kind::loss_of_run));
    BOOST_TEST(have_other_tokens_than_0({text, text_there}));
    BOOST_CHECK((load<small, emulated>(folder.path("there")).generate("Mia was", few).tokens == text_there));
    auto from_here = load<small, emulated>(folder.path("here"));
    BOOST_CHECK(from_here.generate("Mia was", few).tokens == text);
}
