// Launches of whole model steps, counted by dry runs: nothing is launched, and the memory is never touched.
#include "calm/emulated.hpp"

#include <numeric>

#include "calm/evaluate/detail/brier_scoring.hpp"
#include "calm/evaluate/detail/likelihood_scoring.hpp"
#include "calm/evaluate/evaluate_autoencoder.hpp"
#include "calm/model/autoregressive.hpp"
#include "calm/model/calm.hpp"
#include "calm/model/heads.hpp"
#include "calm/model/owned_model.hpp"
#include "calm/sample/generation_session.hpp"
#include "calm/sample/sample_token.hpp"
#include "calm/train/detail/training.hpp"
#include "support/small.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

using on_device = space<emulated>;
// Drafts patches on the device, and reads latents too.
inline constexpr auto drafting = [] {
    auto c = with_head(small, drafted{.num_mlp_layers = 1, .noise_size = 8});
    c.input = input_kind::both;
    return c;
}();
inline constexpr autoregressive_configuration small_ar{.llama = llama_sizes_of(small), .vocab_size = 11};
// Scores each position by one patch.
inline constexpr auto of_four = [] {
    auto c = small;
    c.autoencoder.patch_size = 4;
    return c;
}();
using published = calm_model<published_m, on_device>;

// A model whose parameters have device addresses, with no memory behind them until they are touched.
template <class Model> struct with_addresses {
    arena<emulated> memory{"parameters"};
    Model model;
    explicit with_addresses(index_t vocabulary) : model(vocabulary) {
        memory.watch(false);
        give(parameters_of(model));
        if constexpr (requires { model.ae_model; }) give(frozen_parameters_of(model));
    }

private:
    template <class Parameters> void give(Parameters const& all) {
        for (auto const& p : all) {
            auto const place = [&] { return memory.template take<float>(p.value.extents()).data(); };
            auto* const value = place();
            p.bind(p.owner, value, place());
        }
    }
};

// Launches of step(ctx, model, tokens) for one micro-batch of `tokens` tokens, counted by a dry run.
template <class Model, class Step>
index_t dry_launches(context<emulated>& ctx, Model& model, index_t tokens, Step const& step) {
    std::vector<token_id> const ids(static_cast<std::size_t>(tokens));
    ctx.set_dry_run(true);
    auto const before = ctx.counts();
    index_t const dry_launches_before = ctx.dry_launches();
    {
        arena_scope const saved(ctx.saved);
        arena_scope const workspace(ctx.workspace);
        step(ctx, model, std::span<token_id const>(ids));
    }
    auto const after = ctx.counts();
    ctx.set_dry_run(false);
    BOOST_TEST(after.launches == before.launches);
    BOOST_TEST((after.waits == before.waits && after.uploads == before.uploads));
    return ctx.dry_launches() - dry_launches_before;
}

// A step of a language model with sequences of P patches and N samples per position.
auto step_of_calm(index_t P, index_t N) {
    return [=]<class Model>(auto& ctx, Model& model, std::span<token_id const> ids) {
        auto const loss = new_total(ctx);
        typename Model::objective o;
        o.samples = N;
        model.loss_and_gradient(ctx, loss, model.prepare(ctx, ids, P), o);
    };
}
// A patch-level step of an autoregressive model with sequences of P positions.
auto step_of_tokens(index_t P, index_t K) {
    return [=](auto& ctx, auto& model, std::span<token_id const> ids) {
        auto const loss = new_total(ctx);
        model.loss_and_gradient(ctx, loss, model.prepare(ctx, ids, P, K));
    };
}
auto const step_of_autoencoder = [](auto& ctx, auto& model, std::span<token_id const> ids) {
    auto const losses = ctx.workspace.template take<autoencoder_losses>(extents<1>());
    model.loss_and_gradient(ctx, losses, model.prepare(ctx, ids, 0.15), {});
};

template <class Model> owned_model<Model> initialised(index_t vocabulary = 11) {
    owned_model<Model> own(vocabulary);
    context<emulated> const ctx(3, 1);
    initialise(ctx, own.model);
    if constexpr (requires { own.model.ae_model; }) initialise(ctx, own.model.ae_model);
    return own;
}

// A whole training step, from the ids of its one micro-batch through step(ctx, model, ids) to the update: the enqueued
// work, and the launches counted by a dry run.
struct whole_step {
    device_counts asked;
    index_t dry_launches = 0;
};
template <class Model, class Step>
whole_step step_of_run(Model& model, std::span<token_id const> ids, Step const& step) {
    context<emulated> ctx(3, 1);
    ctx.uses_graphs = false;  // counts each launch
    training_recipe recipe;
    recipe.steps = 2;  // arenas grow in the first
    whole_step found;
    device_counts told;
    training_callbacks callbacks;
    callbacks.start = [&](memory_plan const&) { found.dry_launches = ctx.dry_launches() - found.dry_launches; };
    callbacks.step = [&](progress const&) {
        found.asked = ctx.counts() - told;
        told = ctx.counts();
    };
    found.dry_launches = ctx.dry_launches();
    auto const micro = [&](progress&, auto const&) {
        arena_scope const saved(ctx.saved);
        arena_scope const workspace(ctx.workspace);
        step(ctx, model, ids);
    };
    detail::train(ctx, parameters_of(model), recipe, callbacks, {.size = {std::ssize(ids), 0}, .micro = micro});
    return found;
}

}  // namespace

// For small models the dry run's count equals the real launches. In a real micro-batch the ids are uploaded in one
// copy, and nothing waits.
BOOST_AUTO_TEST_CASE(a_dry_run_counts_what_a_step_launches) {
    auto const check = [](auto& model, index_t tokens, auto const& step) {
        context<emulated> ctx(3, 1);
        index_t const want = dry_launches(ctx, model, tokens, step);
        std::vector<token_id> const ids(static_cast<std::size_t>(tokens), 1);
        auto const before = ctx.counts();
        step(ctx, model, std::span<token_id const>(ids));
        auto const after = ctx.counts();
        BOOST_TEST(want > 0);
        BOOST_TEST(after.launches - before.launches == want);
        BOOST_TEST(after.uploads - before.uploads == 1);
        BOOST_TEST(after.waits == before.waits);
        ctx.wait();
    };
    owned_model<calm_model<small, on_device>> language(11);
    check(language.model, 4 * 16, step_of_calm(8, 3));
    owned_model<calm_model<drafting, on_device>> drafts(11);
    check(drafts.model, 4 * 16, step_of_calm(8, 3));
    owned_model<calm_model<with_head(small, flow{.num_mlp_layers = 1}), on_device>> flows(11);
    check(flows.model, 4 * 16, step_of_calm(8, 3));
    owned_model<autoencoder<small.autoencoder, on_device>> own(11);
    check(own.model, 64, step_of_autoencoder);
    owned_model<autoregressive_model<small_ar, on_device>> of_tokens(11);
    check(of_tokens.model, 64, step_of_tokens(16, 1));
    check(of_tokens.model, 64, step_of_tokens(8, 2));
}

// No shape, and so no enqueued work, depends on ids. A dry run counts all launches of the whole step.
BOOST_AUTO_TEST_CASE(a_step_asks_for_the_same_whatever_its_ids) {
    constexpr index_t tokens = 64, vocabulary = 101;
    std::vector<token_id> const equal(tokens, 7);
    std::vector<token_id> different(tokens);
    std::iota(different.begin(), different.end(), 3);
    auto const check = [&](auto own, auto const& step) {
        auto const of_equal = step_of_run(own.model, equal, step);
        auto const of_different = step_of_run(own.model, different, step);
        BOOST_CHECK(of_equal.asked == of_different.asked);
        BOOST_TEST((of_equal.asked.blocks > of_equal.asked.launches && of_equal.asked.bytes > 0));
        BOOST_TEST(of_equal.asked.launches == of_equal.dry_launches);
    };
    check(initialised<calm_model<small, on_device>>(vocabulary), step_of_calm(8, 3));
    check(initialised<calm_model<drafting, on_device>>(vocabulary), step_of_calm(8, 3));
    check(initialised<calm_model<with_head(small, flow{.num_mlp_layers = 1}), on_device>>(vocabulary),
          step_of_calm(8, 3));
    check(initialised<autoencoder<small.autoencoder, on_device>>(vocabulary), step_of_autoencoder);
    check(initialised<autoregressive_model<small_ar, on_device>>(vocabulary), step_of_tokens(16, 1));
    check(initialised<autoregressive_model<small_ar, on_device>>(vocabulary), step_of_tokens(8, 2));
}

namespace {

// Launches of a whole step outside its micro-batch: the loss, the norm and the update.
template <class Model, class Step> index_t launches_of_update(Step const& step) {
    auto own = initialised<Model>();
    std::vector<token_id> const ids(64, 1);
    context<emulated> ctx(3, 1);
    return step_of_run(own.model, ids, step).asked.launches - dry_launches(ctx, own.model, std::ssize(ids), step);
}

}  // namespace

// The published step: 4 sequences of 8,192 tokens with 8 samples per position. The update's launches do not depend on
// the model.
BOOST_AUTO_TEST_CASE(a_step_of_the_smallest_published_model_is_few_launches) {
    index_t const update = launches_of_update<calm_model<small, on_device>>(step_of_calm(8, 3));
    index_t const of_another = launches_of_update<autoencoder<small.autoencoder, on_device>>(step_of_autoencoder);
    BOOST_TEST(update == of_another);
    BOOST_TEST((update > 0 && update <= 5));
    with_addresses<published> own(published_m.autoencoder.vocab_size);
    context<emulated> ctx(3, 1);
    index_t const calm = dry_launches(ctx, own.model, 4 * 8192, step_of_calm(2048, 8)) + update;
    BOOST_TEST_MESSAGE(calm << " launches, " << ctx.saved.peak() / 1'000'000 << " MB saved, "
                            << ctx.workspace.peak() / 1'000'000 << " MB of workspace");
    BOOST_TEST(calm <= 809);
    // The autoencoder's step, for a micro-batch of the recipe.
    with_addresses<published::autoencoder_type> tokens(published_m.autoencoder.vocab_size);
    index_t const of_tokens = dry_launches(ctx, tokens.model, 16384, step_of_autoencoder) + update;
    BOOST_TEST_MESSAGE(of_tokens << " launches of the autoencoder, " << update << " of them the update");
    BOOST_TEST(of_tokens <= 127);
}

// A smaller device uses smaller chunks and more launches.
BOOST_AUTO_TEST_CASE(rows_at_once_follow_from_the_memory) {
    with_addresses<published> own(published_m.autoencoder.vocab_size);
    context<emulated> large(3, 1), middle(3, 1);
    middle.memory = std::size_t{8} << 30;
    index_t const of_large = dry_launches(large, own.model, 8192, step_of_calm(2048, 8));
    index_t const of_middle = dry_launches(middle, own.model, 8192, step_of_calm(2048, 8));
    BOOST_TEST(of_middle > of_large);
    BOOST_TEST(middle.saved.peak() < large.saved.peak());
}

namespace {

// The work that work() enqueues on the device.
template <class Work> device_counts asked_by(Work const& work) {
    auto const before = context<emulated>::counts();
    work();
    return context<emulated>::counts() - before;
}

// One more patch for texts of different lengths: sampled, and read. Enqueued by single kernels or by graphs.
template <class Model>
device_counts asked_for_a_patch(Model const& model, index_t texts, bool by_graphs,
                                rule_of<Model> const& rule = rule_of<Model>::unchanged()) {
    context<emulated> ctx(1, 1);
    ctx.uses_graphs = by_graphs;
    sampler_cache<emulated> sampler_state(ctx, model);
    generation_session<Model, emulated> session(ctx, model, texts, 16);
    std::vector<index_t> all;
    std::vector<patch_rng> rngs;
    for (index_t i = 0; i < texts; ++i) {
        session.begin(i, std::vector<token_id>(static_cast<std::size_t>(Model::K * (1 + i % 3)), 1));
        all.push_back(i);
        rngs.push_back({i, {{1, stream::generation, static_cast<std::uint32_t>(i)}, i}});
    }
    std::vector<token_id> patches(static_cast<std::size_t>(texts * Model::K));
    auto const write = [&] {
        sample_next(ctx, model, std::span(patches), session.hidden(), rule, std::span<patch_rng const>(rngs), 0,
                    &sampler_state);
        session.append(all, patches);
    };
    for (int i = 0; i < 4; ++i) write();  // arenas grow, graphs are captured
    auto const asked = asked_by(write);
    ctx.wait();
    return asked;
}

}  // namespace

// The host waits only for the tokens, and the enqueued work does not depend on the number of texts.
BOOST_AUTO_TEST_CASE(a_patch_of_many_texts_is_waited_for_once) {
    auto const check = [](auto const& model, index_t uploads, index_t graphs) {
        auto const of_two = asked_for_a_patch(model, 2, false), of_seven = asked_for_a_patch(model, 7, false);
        BOOST_TEST_MESSAGE(of_two.launches << " launches");
        BOOST_TEST(of_two.launches == of_seven.launches);
        BOOST_TEST(of_two.uploads == of_seven.uploads);
        BOOST_TEST(of_two.waits == of_seven.waits);
        BOOST_TEST(of_two.allocations == of_seven.allocations);
        BOOST_TEST(of_two.waits == 1);
        BOOST_TEST(of_two.uploads == uploads);
        BOOST_TEST(of_two.allocations == 0);
        BOOST_TEST(of_two.graphs == 0);
        auto const together = asked_for_a_patch(model, 7, true);
        BOOST_TEST((together.graphs == graphs && together.waits == 1 && together.allocations == 0));
        if (graphs == 2) BOOST_TEST((together.launches == 0 && together.uploads == 0));
    };
    // Uploads: rows of hidden states, rngs of the noise, ids, ends of the sequences, texts.
    check(initialised<calm_model<small, on_device>>().model, 5, 2);
    check(initialised<calm_model<drafting, on_device>>().model, 5, 2);
    check(initialised<calm_model<with_head(small, flow{.num_mlp_layers = 1}), on_device>>().model, 5, 2);
    // Its logits are launched outside the graph.
    check(initialised<autoregressive_model<small_ar, on_device>>().model, 4, 1);
}

// One decoding layer for at most sixteen texts: q, k and v of normalised rows; RoPE and cache append; attention; W_o;
// fused gate and up of normalised rows; W_down.
BOOST_AUTO_TEST_CASE(a_layer_of_a_patch_is_six_launches) {
    using layer_type = transformer_block<32, 40, 4, 2, on_device>;
    context<emulated> ctx(1, 1);
    arena<emulated> values("values");
    layer_type layer;
    allocate(layer, values, static_cast<arena<emulated>*>(nullptr));
    initialise(ctx, layer);
    kv_cache<16, on_device> cache(17, 64);
    auto const launched = [&](index_t texts) {
        auto const all = cache.all();
        auto const now = cache.as_now(std::span(all).first(static_cast<std::size_t>(texts)));
        auto const x = ctx.saved.take<float>(extents<dyn, 32>(texts));
        fill_normal(ctx, x, key{1});
        auto const there = to_device(ctx, std::span(now));
        auto const before = ctx.counts();
        layer.extend(ctx, matrix_view<float const, 32, emulated>(x), cache, rope_theta, there);
        return (ctx.counts() - before).launches;
    };
    BOOST_TEST(launched(1) == 6);
    BOOST_TEST(launched(7) == 6);
    BOOST_TEST(launched(16) == 6);
    BOOST_TEST(launched(17) == 12);  // two norms, five separate products, and the gate after two products
}

// Launches of the networks of the smallest published model per patch. Each of sixteen layers takes six, each of the
// head's four blocks seven, each of the decoder's two layers three, plus the surrounding operations.
BOOST_AUTO_TEST_CASE(a_patch_of_the_smallest_published_model_is_few_launches) {
    with_addresses<published> own(published_m.autoencoder.vocab_size);
    context<emulated> ctx(3, 1);
    auto cache = own.model.make_cache(1, 64);
    index_t const text = 0;
    std::vector<token_id> const patch(static_cast<std::size_t>(published::K), 1);
    auto const hidden = ctx.saved.take<float>(extents<dyn, published::D>(1));
    auto const z = ctx.saved.take<float>(extents<dyn, published::L>(1));
    auto const tokens = ctx.saved.take<token_id>(extents<dyn>(published::K));
    row_rng const place[] = {{{1, stream::generation, 0}, 0}};
    auto const dry_launches_of = [&](auto const& work) {
        arena_scope const saved(ctx.saved);
        arena_scope const workspace(ctx.workspace);
        index_t const before = ctx.dry_launches();
        ctx.set_dry_run(true);
        work();
        ctx.set_dry_run(false);
        return ctx.dry_launches() - before;
    };
    index_t const read =
        dry_launches_of([&] { own.model.extend(ctx, std::span<token_id const>(patch), cache, std::span(&text, 1)); });
    index_t const drawn = dry_launches_of([&] { own.model.generator.sample(ctx, z, {.hidden = hidden}, place); });
    index_t const decoded = dry_launches_of([&] { own.model.ae_model.decode_tokens(ctx, tokens, z); });
    BOOST_TEST_MESSAGE(read << " launches to read, " << drawn << " to draw, " << decoded << " to decode");
    BOOST_TEST((read == 16 * 6 + 6 && drawn == 4 * 7 + 10 && decoded == 2 * 3 + 6));
}

// The batch rule shares its rounds among texts that finish after different numbers of draws, and earlier draws are not
// copied text by text.
BOOST_AUTO_TEST_CASE(a_patch_by_the_batch_rule_asks_for_little_more_where_texts_are_many) {
    auto const own = initialised<calm_model<small, on_device>>(1 << 12);  // large enough for lazy decoding
    auto const rule = sampler::batch(temperature::of(0.5), 100);
    auto const of_few_texts = asked_for_a_patch(own.model, 4, false, rule);
    auto const of_many_texts = asked_for_a_patch(own.model, 16, false, rule);
    BOOST_TEST_MESSAGE(of_few_texts.launches << " and " << of_many_texts.launches << " launches, " << of_few_texts.waits
                                             << " and " << of_many_texts.waits << " waits");
    BOOST_TEST(of_many_texts.launches < 3 * of_few_texts.launches);
    BOOST_TEST(of_many_texts.waits < 3 * of_few_texts.waits);
}

// A cache grows in one launch for any number of sequences, and keeps their contents.
BOOST_AUTO_TEST_CASE(a_cache_grows_at_once_for_all_sequences) {
    constexpr index_t width = 3, room = kv_cache<width>::least_room;
    context<emulated> ctx(1, 1);
    auto const grown = [&](index_t sequences) {
        kv_cache<width, on_device> cache(sequences, 4 * room);
        auto const append = [&](index_t sequence, index_t count) {
            arena_scope const scope(ctx.workspace);
            auto const x = ctx.workspace.take<float>(extents<dyn, width>(count));
            fill(ctx, x, static_cast<float>(1 + sequence));
            cache.append(ctx, sequence, x, x);
        };
        for (index_t s = 0; s < sequences; ++s) append(s, room - sequences + 1 + s);
        auto const without = asked_by([&] { append(0, 1); });
        auto const with_growth = asked_by([&] { append(sequences - 1, 1); });
        BOOST_TEST(cache.room() == 2 * room);
        for (auto const* part : {&cache.keys, &cache.values})
            for (index_t s = 0; s < sequences; ++s)
                for (index_t p = 0; p < cache.length(s); ++p)
                    BOOST_REQUIRE(opened(part->view())[(s * 2 * room + p) * width] == static_cast<float>(1 + s));
        BOOST_TEST(with_growth.allocations == 2);  // keys and values
        return with_growth.launches - without.launches;
    };
    BOOST_TEST(grown(2) == 1);
    BOOST_TEST(grown(5) == 1);
}

// A smaller device computes logits for fewer rows at once, and the host waits for each part.
BOOST_AUTO_TEST_CASE(logits_are_computed_at_once_as_the_memory_allows) {
    using tokens_type = autoregressive_model<small_ar, on_device>;
    auto const own = initialised<tokens_type>();
    constexpr index_t R = 7, V = 11;
    auto const logits_in = [&](std::size_t memory) {
        context<emulated> ctx(1, 1);
        ctx.memory = memory;
        auto const hidden = ctx.saved.take<float>(extents<dyn, tokens_type::D>(R));
        fill_normal(ctx, hidden, key{1, stream::evaluation, 0});
        std::vector<float> all;
        auto const asked = asked_by([&] {
            for_each_logits(ctx, own.model, matrix_view<float const, tokens_type::D, emulated>(hidden),
                            [&](index_t, auto logits) { all.insert(all.end(), logits.begin(), logits.end()); });
        });
        BOOST_TEST(std::ssize(all) == R * V);
        return std::pair(asked.waits, all);
    };
    auto const at_once = logits_in(std::size_t{1} << 30), in_parts = logits_in(4 * 3 * V * sizeof(float));
    BOOST_TEST(at_once.first == 1);
    BOOST_TEST(in_parts.first == 3);
    BOOST_TEST(in_parts.second == at_once.second, boost::test_tools::per_element());
}

// A batch waits once for its samples and, if requested, once for its loss.
BOOST_AUTO_TEST_CASE(a_batch_of_blocks_is_waited_for_where_its_scores_are_read) {
    using model_type = calm_model<of_four, on_device>;
    auto own = initialised<model_type>();
    context<emulated> ctx(1, 1);
    constexpr index_t P = 5;
    std::vector<token_id> const block(P * model_type::K, 1);
    evaluation_settings settings;
    settings.block_tokens = std::ssize(block);
    settings.batch = 3;
    index_t number = 0;
    auto const of_batch = [&](std::optional<model_type::objective> const& loss) {
        detail::brier_scoring<model_type, emulated> scores(ctx, own.model, nullptr, settings, loss);
        auto const score = [&] {
            for (index_t i = 0; i < settings.batch; ++i) scores.add(number++, block, {0, 2, 3});
        };
        score();
        return asked_by(score);
    };
    auto const alone = of_batch({}), with_loss = of_batch(model_type::objective{.samples = 3, .targets = 4});
    BOOST_TEST((alone.waits == 1 && with_loss.waits == 2));
    BOOST_TEST((alone.uploads == 3 && with_loss.uploads == 4));  // ids, rows and rngs; ids of the targets
    BOOST_TEST((alone.allocations == 0 && with_loss.allocations == 0));

    // Tokens of the mean and of one sample, losses, deviations.
    autoencoder_scoring patches(ctx, own.model.ae_model, token_id{10}, 1);
    auto const score = [&] {
        for (index_t i = 0; i < 512; ++i) patches.add(i, std::span(block).first(model_type::K));
    };
    score();
    auto const of_patches = asked_by(score);
    BOOST_TEST((of_patches.waits == 4 && of_patches.uploads == 1 && of_patches.allocations == 0));

    // The probabilities of a block.
    using tokens_type = autoregressive_model<small_ar, on_device>;
    auto of_tokens = initialised<tokens_type>();
    token_evaluation_settings token_settings;
    token_settings.block_tokens = std::ssize(block);
    likelihood_scoring<tokens_type, emulated> likelihoods(ctx, of_tokens.model, nullptr, token_settings, 10, {});
    likelihoods.add(0, block, {});
    auto const of_block = asked_by([&] { likelihoods.add(1, block, {}); });
    BOOST_TEST((of_block.waits == 1 && of_block.uploads == 1 && of_block.allocations == 0));
}

// Samples take at most the memory that their head declares, and not much less.
BOOST_AUTO_TEST_CASE(samples_take_the_memory_that_their_head_states) {
    with_addresses<published> own(published_m.autoencoder.vocab_size);
    constexpr index_t L = published::L, D = published::D, N = 8;
    auto const taken = [&](index_t R) {
        context<emulated> ctx(3, 1);
        ctx.set_dry_run(true);
        auto const rows_of = [&]<index_t W>(extents<W>) {
            return matrix_view<float, W, emulated>{own.memory.take<float>(extents<dyn, W>(R)).data(),
                                                   extents<dyn, W>(R)};
        };
        matrix_view<float const, D, emulated> const hidden = rows_of(extents<D>());
        matrix_view<float const, L, emulated> const mean = rows_of(extents<L>()), log_std = rows_of(extents<L>());
        auto const dhidden = rows_of(extents<D>());
        own.model.generator.loss_and_gradient(ctx, new_total(ctx), {.hidden = hidden, .mean = mean, .log_std = log_std},
                                              {.dhidden = dhidden}, {.samples = N, .targets = 32}, 0);
        return static_cast<double>(ctx.saved.peak() + ctx.workspace.peak());
    };
    double const a_sample = (taken(1000) - taken(500)) / (500 * N) / sizeof(float);
    BOOST_TEST_MESSAGE(a_sample << " numbers a sample");
    BOOST_TEST(a_sample <= static_cast<double>(decltype(own.model.generator)::numbers_per_sample));
    BOOST_TEST(a_sample >= 0.7 * static_cast<double>(decltype(own.model.generator)::numbers_per_sample));
}
