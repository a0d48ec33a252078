#include <boost/test/unit_test.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <limits>
#include <type_traits>

#include "calm/io/describe_model.hpp"
#include "calm/io/load_model.hpp"
#include "calm/io/read_model_description.hpp"
#include "calm/io/save_model.hpp"
#include "calm/io/stored_model.hpp"
#include "calm/runs/run_directory.hpp"
#include "calm/train/session.hpp"

#include "support/sentences.hpp"
#include "support/small.hpp"
#include "support/temporary_folder.hpp"
#include "support/typed.hpp"

using namespace calm;
using calm::test::has;
using calm::test::says;
using calm::test::sentence_of;
using calm::test::small;
using calm::test::temporary_folder;
using calm::test::weights_of;

namespace {

constexpr index_t vocabulary = 11;

// Ten documents of seven ids below 8. An epoch has about 18 blocks of 4 tokens, so that short runs cross its end.
corpus const& text() {
    static corpus const one = [] {
        corpus made({8, 9, 10});
        for (token_id i = 0; i < 10; ++i) {
            std::vector<token_id> ids;
            for (token_id k = 0; k < 7; ++k) ids.push_back((3 * i + k * k) % 8);
            made.add(std::span<token_id const>(ids));
        }
        return made;
    }();
    return one;
}

// The models to train: each is made, described, saved, loaded and trained.
struct autoencoder_run {
    static constexpr index_t block = 2;
    autoencoder_recipe recipe;
    owned_model<calm_model<small>::autoencoder_type> own = make_autoencoder<small>(context<>(3, 1), vocabulary);

    explicit autoencoder_run(index_t steps) {
        recipe.steps = steps;
        recipe.accumulation = 2;
        recipe.batch_tokens = 16;
        recipe.random_patches = 0.2;
    }
    recipe_record record() const { return record_of(recipe, 3); }
    void save(std::string const& directory) {
        save_model(directory, own.model, describe_model<small.autoencoder>(vocabulary, recipe.objective, {}));
    }
    void load(std::string const& directory) { load_model(read_model_description(directory), own.model); }
    void train(context<>& ctx, text_blocks& blocks, training_callbacks const& callbacks) {
        train_autoencoder(ctx, own.model, blocks, recipe, callbacks);
    }
};

struct calm_run {
    static constexpr index_t block = 8;
    calm_recipe<energy_objective> recipe;
    owned_model<calm_model<small>::autoencoder_type> trained = make_autoencoder<small>(context<>(4, 1), vocabulary);
    owned_model<calm_model<small>> own = make_calm<small>(context<>(3, 1), trained.model);

    explicit calm_run(index_t steps) {
        recipe.steps = steps;
        recipe.accumulation = 2;
        recipe.sequences = 4;
        recipe.block_tokens = block;
        recipe.schedule = learning_rate_schedule::cosine;
        recipe.warmup = 2;
        recipe.objective = {.samples = 3, .targets = 4};
    }
    recipe_record record() const { return record_of(recipe, 3); }
    void save(std::string const& directory) {
        save_model(directory, own.model, describe_model<small>(vocabulary, recipe.objective, {}, {}));
    }
    void load(std::string const& directory) { load_model(read_model_description(directory), own.model); }
    void train(context<>& ctx, text_blocks& blocks, training_callbacks const& callbacks) {
        train_calm(ctx, own.model, blocks, recipe, callbacks);
    }
};

struct calm_run_of_adamw : calm_run {
    explicit calm_run_of_adamw(index_t steps) : calm_run(steps) { recipe.optimizer.muon = 0; }
};

// The results to compare: weights, optimizer state, the place in the text, losses by step.
struct outcome {
    std::vector<float> weights;
    std::vector<std::byte> optimizer_state;
    training_state state;
    block_position data;
    std::vector<double> losses;
};

// One process of a run: resumes from the directory and stops after `most` steps. Calls `event` at every step, and
// before, during and after each save.
template <class Run>
outcome advance(
    std::string const& directory, index_t steps, index_t most, int threads = 1,
    std::function<void()> const& event = [] {}) {
    Run own(steps);
    run_directory run(directory);
    auto const from = run.newest();
    text_blocks blocks(text(), small.autoencoder.patch_size, Run::block, 5);
    if (from) {
        own.load(from->directory);
        blocks.seek(from->record.data);
        for (auto const& d : differences(from->record.recipe, own.record())) BOOST_TEST(d.option == "muon");
    }
    outcome end;
    context<> ctx(3, threads);
    training_callbacks callbacks;
    callbacks.resume = [&](training_state& state) {
        if (from) restore_training(from->directory, state);
    };
    callbacks.step = [&](progress const& now) {
        BOOST_TEST(now.step == (from ? from->record.state.step : 0) + static_cast<index_t>(end.losses.size()));
        end.losses.push_back(now.loss);
        event();
    };
    callbacks.stop = [&] { return static_cast<index_t>(end.losses.size()) == most; };
    callbacks.checkpoint = [&](training_state const& state, state_after when) {
        event();
        run.save({state, 3, blocks.position(), 0, {}, own.record()}, [&](std::string const& d) {
            event();
            own.save(d);
            event();
        });
        event();
        if (when != state_after::end) return;
        end.state = state;
        for (auto const& m : state.optimizer_state)
            end.optimizer_state.insert(end.optimizer_state.end(), m.bytes.begin(), m.bytes.end());
    };
    own.train(ctx, blocks, callbacks);
    end.weights = weights_of(own.own.model);
    end.data = blocks.position();
    return end;
}

template <class T> bool same_bits(std::vector<T> const& a, std::vector<T> const& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <class Run> void check_that_parts_are_the_whole() {
    constexpr index_t steps = 13;
    temporary_folder const folder;
    auto const whole = advance<Run>(folder.path("whole"), steps, steps);
    BOOST_TEST(whole.data.epoch >= 1u);
    for (index_t const first : {1, 5, 12}) {
        auto const directory = folder.path("parts" + std::to_string(first));
        auto part = advance<Run>(directory, steps, first);
        auto losses = part.losses;
        for (index_t const next : {index_t{3}, steps}) {
            if (part.state.step == steps) break;
            part = advance<Run>(directory, steps, next, 2);
            losses.insert(losses.end(), part.losses.begin(), part.losses.end());
        }
        BOOST_TEST(part.state.step == steps);
        BOOST_TEST(part.state.updates == steps);
        BOOST_TEST(same_bits(losses, whole.losses));
        BOOST_TEST(same_bits(part.weights, whole.weights));
        BOOST_TEST(same_bits(part.optimizer_state, whole.optimizer_state));
        BOOST_TEST((part.data == whole.data));
        BOOST_TEST(part.state.seconds > 0);
        auto const finished = advance<Run>(directory, steps, steps);
        BOOST_TEST(finished.losses.empty());
        BOOST_TEST(same_bits(finished.weights, whole.weights));
    }
}

}  // namespace

BOOST_AUTO_TEST_CASE(an_autoencoder_in_parts_is_the_one_trained_at_once) {
    check_that_parts_are_the_whole<autoencoder_run>();
}

BOOST_AUTO_TEST_CASE(a_language_model_in_parts_is_the_one_trained_at_once) {
    check_that_parts_are_the_whole<calm_run>();
}

// Switching to Muon drops the second-moment estimates of hidden matrices. Switching to AdamW starts both estimates at
// zero, so that the first step moves each weight by the learning rate. A resumed run knows when the switch was.
BOOST_AUTO_TEST_CASE(a_run_may_change_between_adamw_and_muon) {
    constexpr index_t steps = 9, before = 4;
    auto const changed = [&]<class Before, class After>(std::type_identity<Before>, std::type_identity<After>,
                                                        index_t hidden_from) {
        temporary_folder const folder;
        auto const last = advance<Before>(folder.path("parts"), steps, before);
        std::filesystem::copy(folder.path("parts"), folder.path("whole"),
                              std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
        auto const whole = advance<After>(folder.path("whole"), steps, steps);
        auto const first = advance<After>(folder.path("parts"), steps, 1);
        BOOST_TEST(first.state.hidden_from == hidden_from);
        auto const rest = advance<After>(folder.path("parts"), steps, steps);
        BOOST_TEST(rest.state.updates == steps);
        BOOST_TEST(rest.state.hidden_from == hidden_from);
        BOOST_TEST(same_bits(rest.weights, whole.weights));
        BOOST_TEST(same_bits(rest.optimizer_state, whole.optimizer_state));
        // How far the first step moves hidden matrices, relative to the learning rate.
        After const run(steps);
        double const rate = schedule::cosine(run.recipe.learning_rate, run.recipe.warmup, steps)(before, 0);
        double most = 0;
        std::size_t at = 0;
        calm_run sizes(steps);
        for (auto const& p : parameters_of(sizes.own.model))
            for (index_t i = 0; i < p.value.size(); ++i, ++at)
                if (p.is_hidden) most = std::max<double>(most, std::abs(first.weights[at] - last.weights[at]) / rate);
        return most;
    };
    std::type_identity<calm_run_of_adamw> const adamw;
    std::type_identity<calm_run> const muon;
    double const by_adamw = changed(muon, adamw, before);
    BOOST_TEST(by_adamw < 1.1);  // plus weight decay
    BOOST_TEST(by_adamw > 0.9);
    BOOST_TEST(changed(adamw, muon, 0) < 3);
}

// Each process dies one event later than the previous one: without a checkpoint, during a save, after the last step.
BOOST_AUTO_TEST_CASE(a_chain_of_processes_that_die_at_every_event_ends_in_the_same_model) {
    constexpr index_t steps = 13;
    temporary_folder const folder;
    auto const whole = advance<autoencoder_run>(folder.path("whole"), steps, steps);
    int deaths = 0;
    for (bool died = true; died; deaths += died ? 1 : 0) {
        pid_t const child = ::fork();
        if (child == 0) {
            int left = deaths + 1;
            static_cast<void>(advance<autoencoder_run>(folder.path("parts"), steps, steps, 1, [&] {
                if (--left == 0) ::kill(::getpid(), SIGKILL);
            }));
            ::_exit(0);
        }
        int status = 0;
        BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
        died = WIFSIGNALED(status);
        if (died)
            BOOST_REQUIRE(WTERMSIG(status) == SIGKILL);
        else
            BOOST_TEST(WEXITSTATUS(status) == 0);
    }
    BOOST_TEST(deaths > 10);
    auto const finished = advance<autoencoder_run>(folder.path("parts"), steps, steps);
    BOOST_TEST(finished.losses.empty());
    BOOST_TEST(same_bits(finished.weights, whole.weights));
    BOOST_TEST((finished.data == whole.data));
}

BOOST_AUTO_TEST_CASE(a_run_that_grows_is_the_longer_one) {
    temporary_folder const folder;
    auto const whole = advance<autoencoder_run>(folder.path("long"), 9, 9);
    static_cast<void>(advance<autoencoder_run>(folder.path("short"), 4, 4));
    auto const grown = advance<autoencoder_run>(folder.path("short"), 9, 9);
    BOOST_TEST(grown.losses.size() == 5u);
    BOOST_TEST(same_bits(grown.weights, whole.weights));
}

BOOST_AUTO_TEST_CASE(time_that_was_used_counts) {
    autoencoder_run one(0);
    one.recipe.seconds = 0.05;
    text_blocks blocks(text(), 2, 2, 5);
    context<> ctx(3, 1);
    training_callbacks callbacks;
    index_t steps = 0;
    callbacks.resume = [](training_state& state) { state.step = state.updates = 40, state.seconds = 0.04; };
    callbacks.step = [&](progress const& now) {
        BOOST_TEST(now.step == 40 + steps++);
        BOOST_TEST(now.seconds > 0.04);
        BOOST_TEST(now.seconds_left <= 0.01);
    };
    train_autoencoder(ctx, one.own.model, blocks, one.recipe, callbacks);
    BOOST_TEST(steps > 0);
    callbacks.resume = [](training_state& state) { state.seconds = 0.05; };
    callbacks.step = [](progress const&) { BOOST_ERROR("a step after the time is used up"); };
    train_autoencoder(ctx, one.own.model, blocks, one.recipe, callbacks);
    callbacks.resume = [](training_state& state) { state.step = -1; };
    BOOST_CHECK_THROW(train_autoencoder(ctx, one.own.model, blocks, one.recipe, callbacks), error);
}

BOOST_AUTO_TEST_CASE(a_record_is_read_back_completely) {
    temporary_folder const folder;
    checkpoint_record r;
    r.state = {.step = 40,
               .updates = 38,
               .hidden_from = 12,
               .skipped = 2,
               .first_phase_steps = 13,
               .seconds = 0.1 + 0.2,
               .optimizer_state = {}};
    r.seed = 18446744073709551615U;
    r.data = {3, 7};
    r.log_bytes = 12345;
    r.score = -1.0 / 3;
    r.recipe = {{"learning-rate", "0.001"}, {"data", "a \"quoted\"\nword"}};
    write_training(folder.path(""), r);
    auto const back = read_record(folder.path(""));
    BOOST_TEST(back.state.step == 40);
    BOOST_TEST(back.state.updates == 38);
    BOOST_TEST(back.state.hidden_from == 12);
    BOOST_TEST(back.state.skipped == 2);
    BOOST_TEST(back.state.first_phase_steps == 13);
    BOOST_TEST(back.state.seconds == r.state.seconds);
    BOOST_TEST(back.seed == r.seed);
    BOOST_TEST((back.data == r.data));
    BOOST_TEST(back.log_bytes == r.log_bytes);
    BOOST_TEST(*back.score == *r.score);
    BOOST_TEST((back.recipe == r.recipe));
}

BOOST_AUTO_TEST_CASE(a_state_that_cannot_be_is_refused) {
    temporary_folder const folder;
    checkpoint_record r;
    write_training(folder.path(""), r);
    auto const good = folder.content("state.json");
    auto const complaint = [&](std::string const& from, std::string const& to) {
        auto changed = good;
        changed.replace(changed.find(from), from.size(), to);
        static_cast<void>(folder.with("state.json", changed));
        return sentence_of<error>([&] { static_cast<void>(read_record(folder.path(""))); });
    };
    BOOST_TEST(has(complaint("\"step\": 0", "\"step\": -1"), "key 'step': expected a whole number"));
    BOOST_TEST(has(complaint("\"step\": 0", "\"step\": 4294967296"), "from 0 to 4294967295, found 4294967296"));
    BOOST_TEST(has(complaint("\"step\"", "\"stop\""), "key 'step': is missing"));
    BOOST_TEST(has(complaint("\"format\": 1", "\"format\": 2"), "later version"));
    BOOST_TEST(has(complaint("\"seconds\": 0.0", "\"seconds\": -1"), "expected a time"));
    BOOST_TEST(has(complaint("\"recipe\": {}", "\"recipe\": {\"a\": 1}"), "expected strings"));
    BOOST_TEST(has(complaint("{", "["), "expected a JSON object, found none"));
    BOOST_TEST(has(complaint("{", "{" + std::string(json_limit::state, ' ')), "at most 1000000 bytes, found 1000"));
}

BOOST_AUTO_TEST_CASE(optimizer_state_of_another_model_is_refused) {
    temporary_folder const folder;
    autoencoder_run one(1);
    adamw optimizer(one.own.model);
    checkpoint_record r;
    r.state.optimizer_state = optimizer.tensors();
    auto const first = r.state.optimizer_state.front();
    write_training(folder.path(""), r);
    calm_run other(1);
    adamw foreign(other.own.model);
    training_state state;
    state.optimizer_state = foreign.tensors();
    BOOST_TEST(
        has(sentence_of<error>([&] { restore_training(folder.path(""), state); }), "expected a tensor 'exp_avg."));
    state.optimizer_state = {{first.name, first.element, first.bytes.first(first.element)}};
    BOOST_TEST(has(sentence_of<error>([&] { restore_training(folder.path(""), state); }), "belongs to another model"));
    state.optimizer_state = {first};
    BOOST_TEST(has(sentence_of<error>([&] { restore_training(folder.path(""), state); }), "expected 2 tensors"));
    BOOST_TEST(state.step == 0);
}

BOOST_AUTO_TEST_CASE(bad_steps_are_left_out_as_often_as_allowed) {
    autoencoder_run one(6);
    one.recipe.skip_nonfinite = 2;
    text_blocks blocks(text(), 2, 2, 5);
    // The text is fine, but for two steps a weight is too large.
    std::vector<index_t> left_out;
    std::vector<float> before;
    auto& bias = one.own.model.hidden_to_latent.bias.value[8];
    float const good = bias;
    training_state end;
    training_callbacks callbacks;
    callbacks.step = [&](progress const& now) { bias = now.step == 1 || now.step == 3 ? 1000.0F : good; };
    callbacks.skipped = [&](progress const& now, error const& why) {
        left_out.push_back(now.step);
        BOOST_TEST(std::isnan(now.loss));
        BOOST_TEST(now.skipped == static_cast<index_t>(left_out.size()));
        BOOST_TEST(has(why.what(), "finite"));
    };
    callbacks.checkpoint = [&](training_state const& state, state_after when) {
        if (when == state_after::end) end = state;
    };
    context<> ctx(3, 1);
    train_autoencoder(ctx, one.own.model, blocks, one.recipe, callbacks);
    BOOST_TEST(left_out == (std::vector<index_t>{2, 4}));
    BOOST_TEST(end.skipped == 2);
    BOOST_TEST(end.updates == 4);
    for (float const w : weights_of(one.own.model)) BOOST_REQUIRE(std::isfinite(w));

    autoencoder_run two(6);
    two.recipe.skip_nonfinite = 1;
    auto& other = two.own.model.hidden_to_latent.bias.value[8];
    callbacks = {};
    callbacks.step = [&](progress const&) { other = 1000.0F; };
    BOOST_CHECK_EXCEPTION(train_autoencoder(ctx, two.own.model, blocks, two.recipe, callbacks), error,
                          [](error const& e) { return e.code() == errc::non_finite && has(e.what(), "step 2"); });
}

BOOST_AUTO_TEST_CASE(states_are_offered_once_a_step) {
    autoencoder_run one(20);
    one.recipe.evaluate_every = 7;
    std::vector<std::pair<index_t, state_after>> offered;
    training_callbacks callbacks;
    callbacks.checkpoint = [&](training_state const& s, state_after when) { offered.emplace_back(s.step, when); };
    index_t ended = 0;
    callbacks.ended = [&](progress const& now) {
        BOOST_TEST(ended == 0);
        BOOST_TEST(offered.back().first == 18);  // not the final state yet
        ended = now.step + 1;
    };
    text_blocks blocks(text(), 2, 2, 5);
    context<> ctx(3, 1);
    train_autoencoder(ctx, one.own.model, blocks, one.recipe, callbacks);
    using enum state_after;
    std::vector<std::pair<index_t, state_after>> const expected{
        {2, interval},  {4, interval},  {6, interval},  {7, evaluation}, {8, interval}, {10, interval},
        {12, interval}, {14, interval}, {16, interval}, {18, interval},  {20, end}};
    BOOST_CHECK(offered == expected);
    BOOST_TEST(ended == 20);
}

BOOST_AUTO_TEST_CASE(optimizer_state_with_nan_is_neither_written_nor_read) {
    temporary_folder const folder;
    std::filesystem::create_directory(folder.path("one"));
    std::vector<float> optimizer_state{1, 2, 3};
    checkpoint_record record;
    record.state.optimizer_state = {{"exp_avg.w", sizeof(float), std::as_writable_bytes(std::span(optimizer_state))}};
    optimizer_state[1] = std::numeric_limits<float>::infinity();
    BOOST_CHECK_EXCEPTION(write_training(folder.path("one"), record), error,
                          says(errc::non_finite, "'exp_avg.w', element [1]"));
    BOOST_TEST(std::filesystem::is_empty(folder.path("one")));
    optimizer_state[1] = 2;
    write_training(folder.path("one"), record);
    optimizer_state[1] = std::numeric_limits<float>::quiet_NaN();
    write_safetensors(folder.path("one/training.safetensors"),
                      std::vector{to_store("exp_avg.w", {3}, std::span<float const>(optimizer_state))});
    optimizer_state = {7, 7, 7};
    auto state = record.state;
    BOOST_CHECK_EXCEPTION(restore_training(folder.path("one"), state), error,
                          says(errc::non_finite, "'exp_avg.w', element [1]"));
    BOOST_TEST(optimizer_state == (std::vector<float>{7, 7, 7}));
}

BOOST_AUTO_TEST_CASE(weights_with_nan_leave_the_last_checkpoint) {
    temporary_folder const folder;
    run_directory run(folder.path("run"));
    autoencoder_run one(2);
    auto const write = [&](std::string const& directory) { one.save(directory); };
    checkpoint_record record;
    record.state.step = 1;
    run.save(record, write);
    auto const good = folder.content("run/model.safetensors");
    one.own.model.hidden_to_latent.bias.value[2] = std::numeric_limits<float>::infinity();
    record.state.step = 2;
    BOOST_CHECK_EXCEPTION(run.save(record, write), error, [](error const& e) {
        return e.code() == errc::non_finite && has(e.what(), "'encoder.hidden_to_latent.bias', element [2]");
    });
    BOOST_TEST(run.newest()->record.state.step == 1);
    BOOST_TEST(folder.content("run/model.safetensors") == good);
    for (auto const& entry : std::filesystem::directory_iterator(folder.path("run/checkpoints")))
        BOOST_TEST(entry.path().filename() == "step-00000001");
}
