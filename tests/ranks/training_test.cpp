// Whole training runs on several ranks, here threads, must be bit-identical to the run on one.

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/emulated.hpp"
#include "calm/model/heads.hpp"
#include "calm/model/owned_model.hpp"
#include "calm/ranks/thread_ranks.hpp"
#include "calm/tensor/ops/bf16_products.hpp"
#include "calm/train/loop.hpp"

#include "support/fake_nccl.hpp"
#include "support/sanitized.hpp"
#include "support/sentences.hpp"
#include "support/small.hpp"

using namespace calm;
using calm::test::has;
using calm::test::small;

namespace {

// Numbers of ranks to compare with one; fewer under the sanitizers.
std::vector<int> const several = calm::test::is_sanitized ? std::vector{2} : std::vector{2, 4};
std::vector<int> const any = calm::test::is_sanitized ? std::vector{1, 2} : std::vector{1, 2, 4};

using model_type = calm_model<small>;
using autoencoder_type = model_type::autoencoder_type;
using device_model = calm_model<small, space<emulated>>;
using of_autoencoders = std::tuple<autoencoder_type, device_model::autoencoder_type>;

// Its matrices have several ranges, which are distributed over the ranks.
constexpr autoregressive_configuration small_ar{.llama = {.hidden_size = 128,
                                                          .intermediate_size = 192,
                                                          .num_hidden_layers = 1,
                                                          .num_attention_heads = 2,
                                                          .num_key_value_heads = 1},
                                                .vocab_size = 11};
using ar_type = autoregressive_model<small_ar>;

template <class Model> using context_of = context<typename space_of<Model>::backend>;

// The model with each of the heads.
template <class Head> using with = calm_model<with_head(small, Head{})>;
using of_every_kind =
    std::tuple<autoencoder_type, ar_type, model_type, with<flow>, with<diffusion>, with<margin>, with<drafted>>;

template <class Model> struct recipe_of_model { using type = calm_recipe<typename Model::objective>; };
template <> struct recipe_of_model<autoencoder_type> { using type = autoencoder_recipe; };
template <> struct recipe_of_model<ar_type> { using type = autoregressive_recipe; };
template <class Model> using recipe_of = typename recipe_of_model<Model>::type;

// Calls the training loop for this kind of model.
template <class Model, class... Rest> void train(context_of<Model>& ctx, Model& model, Rest&&... rest) {
    if constexpr (std::is_same_v<Model, autoencoder_type>)
        train_autoencoder(ctx, model, rest...);
    else if constexpr (std::is_same_v<Model, ar_type>)
        train_autoregressive(ctx, model, rest...);
    else
        train_calm(ctx, model, rest...);
}

struct counting_source {
    token_id next = 0;
    void operator()(std::span<token_id> tokens) {
        for (auto& t : tokens) t = std::exchange(next, (next * 3 + 1) % 11);
    }
};

// The values of all parameters in the order of visit, copied to the host.
template <class Model> std::vector<float> weights_on_host(context_of<Model> const& ctx, Model& model) {
    std::vector<float> all, room;
    for (auto const& p : parameters_of(model)) {
        auto const values = to_host(ctx, p.value, room);
        all.insert(all.end(), values.begin(), values.end());
    }
    return all;
}
template <class Model> void set_weights(context_of<Model> const& ctx, Model& model, std::vector<float> const& values) {
    float const* at = values.data();
    for (auto const& p : parameters_of(model)) {
        if constexpr (host_memory<typename space_of<Model>::backend>)
            std::copy_n(at, p.value.size(), p.value.data());
        else
            copy(ctx, p.value, vector_view<float const>(at, extents<dyn>(p.value.size())));
        at += p.value.size();
    }
}

// Everything that a run leaves, compared bitwise.
struct outcome {
    std::vector<float> weights;
    std::map<std::string, std::vector<std::byte>> optimizer_state;
    std::vector<std::pair<double, double>> steps;  // loss and gradient norm

    bool operator==(outcome const& other) const {
        return weights.size() == other.weights.size() && optimizer_state == other.optimizer_state &&
               steps == other.steps &&
               std::memcmp(weights.data(), other.weights.data(), weights.size() * sizeof(float)) == 0;
    }
};

// A saved state to resume from.
struct kept_state {
    training_state numbers;
    std::map<std::string, std::vector<std::byte>> optimizer_state;
    std::vector<float> weights;
    std::vector<token_id> source;
};

// Whether the ranks' devices exchange by NCCL.
bool by_nccl = false;

// Ranks that reduce gradients in small buckets with small messages. `early` counts the buckets whose exchange starts
// before backward has ended.
struct in_small_buckets {
    process_group* ranks;
    std::atomic<int>* early;
    operator process_group*() const { return ranks; }  // NOLINT(google-explicit-constructor): used as a process group
};

template <class Space> class noted_work final : public data_parallel {
public:
    noted_work(context<typename Space::backend> const& ctx, std::vector<any_parameter<Space>> const& parameters,
               in_small_buckets const& how) :
        optimizer_(ctx, parameters, *how.ranks, 300, 1000),
        ctx_(ctx), early_(*how.early) {}
    [[nodiscard]] int rank() const override { return optimizer_.rank(); }
    [[nodiscard]] int count() const override { return optimizer_.count(); }
    [[nodiscard]] index_t micro_batches(index_t n) const override { return optimizer_.micro_batches(n); }
    void begin_run(std::uint64_t seed, training_state const& state, training_recipe const& recipe,
                   index_t tokens) override {
        optimizer_.begin_run(seed, state, recipe, tokens);
    }
    double sync_clock(index_t steps_done) override { return optimizer_.sync_clock(steps_done); }
    [[nodiscard]] std::vector<std::size_t> const& bucket_begins() const override { return optimizer_.bucket_begins(); }
    void begin_reduce(std::size_t bucket) override {
        if (ctx_.after_gradients) ++early_;
        optimizer_.begin_reduce(bucket);
    }
    void make_progress() override { optimizer_.make_progress(); }
    void reduce_gradients(std::span<std::byte> losses) override { optimizer_.reduce_gradients(losses); }
    void all_gather_values() override { optimizer_.all_gather_values(); }
    void all_gather_gradients(std::vector<bool> const& marked) override { optimizer_.all_gather_gradients(marked); }
    [[nodiscard]] std::size_t buffer_bytes() const override { return optimizer_.buffer_bytes(); }
    [[nodiscard]] part own(std::size_t i) const override { return optimizer_.own(i); }
    [[nodiscard]] index_t ranges() const override { return optimizer_.ranges(); }
    std::span<double const> all_gather_squares(std::span<double const> own) override {
        return optimizer_.all_gather_squares(own);
    }
    [[nodiscard]] std::size_t first_nonfinite() const override { return optimizer_.first_nonfinite(); }
    void gather_on_rank_0(std::span<void const* const> from, std::span<void* const> to) override {
        optimizer_.gather_on_rank_0(from, to);
    }

private:
    sharded_optimizer<Space> optimizer_;
    context<typename Space::backend> const& ctx_;
    std::atomic<int>& early_;
};
// The overload that training finds for such ranks.
template <class Space>
std::unique_ptr<data_parallel> part_of(context<typename Space::backend> const& ctx,
                                       std::vector<any_parameter<Space>> const& parameters, gradient_exchange,
                                       in_small_buckets const& how) {
    return std::make_unique<noted_work<Space>>(ctx, parameters, how);
}

// Trains a model on R ranks with the loop `train` and returns the outcome. It resumes from the state `from`, if any;
// `kept` receives the last state.
template <class Model, class Train>
outcome run_of(int R, Train const& train, kept_state const* from = nullptr, kept_state* kept = nullptr) {
    outcome first;
    std::vector<std::vector<float>> weights(static_cast<std::size_t>(R));
    calm::test::fake_fabric fabric(R);
    on_ranks(R, [&](process_group& ranks) {
        std::optional<nccl_transport<calm::test::fake_nccl>> devices;
        if (by_nccl) devices.emplace(ranks, calm::test::fake_nccl(fabric, ranks.rank()));
        owned_model<Model> own(11);
        context_of<Model> ctx(3, 1);
        initialise(ctx, own.model);
        if constexpr (requires { own.model.ae_model; }) initialise(ctx, own.model.ae_model);
        counting_source source;
        outcome here;
        training_callbacks callbacks;
        callbacks.resume = [&](training_state& state) {
            if (from == nullptr) return;
            set_weights(ctx, own.model, from->weights);
            for (auto& m : state.optimizer_state)
                std::ranges::copy(std::span(from->optimizer_state.at(m.name)).subspan(m.begin, m.bytes.size()),
                                  m.bytes.begin());
            auto optimizer_state = std::move(state.optimizer_state);
            state = from->numbers;
            state.optimizer_state = std::move(optimizer_state);
            source.next = from->source.front();
        };
        callbacks.step = [&](progress const& now) { here.steps.emplace_back(now.loss, now.gradient_norm); };
        callbacks.checkpoint = [&](training_state const& state, state_after) {
            for (auto const& m : state.optimizer_state) here.optimizer_state[m.name] = {m.bytes.begin(), m.bytes.end()};
            if (kept == nullptr) return;
            *kept = {state, here.optimizer_state, weights_on_host(ctx, own.model), {source.next}};
            kept->numbers.optimizer_state.clear();
        };
        train(ctx, own.model, source, callbacks, ranks.ranks() > 1 ? &ranks : nullptr);
        weights[static_cast<std::size_t>(ranks.rank())] = here.weights = weights_on_host(ctx, own.model);
        if (ranks.is_first()) first = std::move(here);
    });
    BOOST_TEST(fabric.misuse() == "");
    BOOST_TEST((fabric.of(0).groups > 0) == (by_nccl && R > 1));
    for (auto const& each : weights)
        BOOST_TEST((std::memcmp(each.data(), first.weights.data(), each.size() * sizeof(float)) == 0));
    return first;
}

template <class Recipe> Recipe steps_of(index_t steps, index_t accumulation) {
    Recipe r;
    r.steps = steps;
    r.accumulation = accumulation;
    r.learning_rate = 3e-3;
    r.warmup = 2;
    r.optimizer.clip = 0.5;
    if constexpr (requires { r.batch_tokens; }) {
        r.batch_tokens = 96;
        r.random_patches = 0.3;
    } else {
        r.sequences = 12;
        r.block_tokens = 16;
    }
    return r;
}

template <class Model = autoencoder_type> outcome autoencoder_on(int R, index_t steps, index_t accumulation) {
    auto r = steps_of<autoencoder_recipe>(steps, accumulation);
    r.log_every = 3;  // for a device
    return run_of<Model>(R, [&](auto& ctx, auto& model, auto& source, auto const& callbacks, process_group* ranks) {
        train_autoencoder(ctx, model, source, r, callbacks, ranks);
    });
}
template <class Model = model_type>
outcome calm_on(int R, index_t steps, index_t accumulation, kept_state const* from = nullptr,
                kept_state* kept = nullptr) {
    auto r = steps_of<calm_recipe<energy_objective>>(steps, accumulation);
    r.objective = {.samples = 3, .targets = 4};
    r.optimizer.muon = 2;
    r.log_every = 3;  // for a device
    return run_of<Model>(
        R,
        [&](auto& ctx, auto& model, auto& source, auto const& callbacks, process_group* ranks) {
            train_calm(ctx, model, source, r, callbacks, ranks);
        },
        from, kept);
}
// In bf16, with enough rows that products do not stay in fp32.
template <class Model>
outcome rounded_on(int R, index_t steps, weight_rounding rounding, kept_state const* from = nullptr,
                   kept_state* kept = nullptr) {
    auto r = steps_of<autoencoder_recipe>(steps, 4);
    r.batch_tokens = 1024;
    r.rounding = rounding;
    return run_of<Model>(
        R,
        [&](auto& ctx, auto& model, auto& source, auto const& callbacks, process_group* ranks) {
            multiply_in_bf16(ctx);
            train_autoencoder(ctx, model, source, r, callbacks, ranks);
        },
        from, kept);
}
outcome autoregressive_on(int R, index_t steps, index_t accumulation) {
    auto r = steps_of<autoregressive_recipe>(steps, accumulation);
    r.level = {2, 0.5};  // two phases; the first reads more text
    r.optimizer.muon = 1;
    return run_of<ar_type>(R, [&](auto& ctx, auto& model, auto& source, auto const& callbacks, process_group* ranks) {
        train_autoregressive(ctx, model, source, r, callbacks, ranks);
    });
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_number_of_ranks_changes_no_bit) {
    auto const ae = autoencoder_on(1, 5, 4);
    auto const lm = calm_on(1, 5, 4);
    auto const ar = autoregressive_on(1, 5, 4);
    BOOST_TEST(lm.steps.size() == 5U);
    BOOST_TEST(lm.optimizer_state.size() > 0U);
    for (int const R : several) {
        BOOST_TEST((autoencoder_on(R, 5, 4) == ae), R << " ranks");
        BOOST_TEST((calm_on(R, 5, 4) == lm), R << " ranks");
        BOOST_TEST((autoregressive_on(R, 5, 4) == ar), R << " ranks");
    }
    BOOST_TEST((calm_on(3, 5, 6) == calm_on(1, 5, 6)));
    BOOST_TEST(!(calm_on(1, 5, 2) == lm));  // another tree of sums
}

// Also if gradients of later layers are exchanged while earlier layers are computed.
BOOST_AUTO_TEST_CASE_TEMPLATE(gradients_exchanged_during_backward_change_no_bit, model, of_every_kind) {
    auto r = steps_of<recipe_of<model>>(3, 4);
    r.optimizer.muon = 0;  // Muon's gradients are exchanged after backward
    if constexpr (requires { r.objective.samples; }) r.objective.samples = 3;
    if constexpr (requires { r.objective.targets; }) r.objective.targets = 4;
    if constexpr (requires { r.level; }) r.level = {2, 0.5};
    auto const alone = run_of<model>(1, [&](auto& ctx, auto& own, auto& source, auto const& callbacks, process_group*) {
        train(ctx, own, source, r, callbacks, nullptr);
    });
    for (int const R : several) {
        std::atomic<int> early = 0;
        auto const together =
            run_of<model>(R, [&](auto& ctx, auto& own, auto& source, auto const& callbacks, process_group* ranks) {
                train(ctx, own, source, r, callbacks, in_small_buckets{ranks, &early});
            });
        BOOST_TEST((together == alone), R << " ranks");
        BOOST_TEST(early >= R * 3 * 2);  // two buckets per step
    }
}

// Ranks exchange device memory through the host's memory or by NCCL.
BOOST_AUTO_TEST_CASE(the_number_of_ranks_with_a_device_changes_no_bit) {
    auto const ae = autoencoder_on<device_model::autoencoder_type>(1, 5, 4);
    auto const lm = calm_on<device_model>(1, 5, 4);
    BOOST_TEST(lm.steps.size() == 5U);
    for (bool const way : {false, true}) {
        by_nccl = way;
        for (int const R : several) {
            BOOST_TEST((autoencoder_on<device_model::autoencoder_type>(R, 5, 4) == ae), R << " ranks");
            BOOST_TEST((calm_on<device_model>(R, 5, 4) == lm), R << " ranks");
        }
        kept_state kept;
        calm_on<device_model>(2, 3, 4, nullptr, &kept);
        for (int const after : any) {
            auto const rest = calm_on<device_model>(after, 5, 4, &kept);
            BOOST_TEST((rest.weights == lm.weights && rest.optimizer_state == lm.optimizer_state), "2 to " << after);
        }
    }
    by_nccl = false;
}

BOOST_AUTO_TEST_CASE(a_run_resumes_with_any_number_of_ranks) {
    auto const whole = calm_on(1, 6, 4);
    for (int const before : {1, 4}) {
        kept_state kept;
        calm_on(before, 3, 4, nullptr, &kept);
        BOOST_TEST(kept.numbers.step == 3);
        for (int const after : any) {
            auto const rest = calm_on(after, 6, 4, &kept);
            BOOST_TEST((rest.weights == whole.weights && rest.optimizer_state == whole.optimizer_state),
                       before << " to " << after);
            BOOST_TEST((rest.steps == std::vector(whole.steps.begin() + 3, whole.steps.end())));
        }
    }
}

// A step's rounded copies depend on the weights, the seed and the step, not on the rank or on where a run resumed.
BOOST_AUTO_TEST_CASE_TEMPLATE(weights_are_rounded_at_random_equally_on_all_ranks, model, of_autoencoders) {
    auto const whole = rounded_on<model>(1, 4, weight_rounding::stochastic);
    BOOST_TEST((rounded_on<model>(2, 4, weight_rounding::stochastic) == whole));
    // A device takes too long for the rest.
    if (calm::test::is_sanitized && device_memory<typename space_of<model>::backend>) return;
    BOOST_TEST(!(rounded_on<model>(1, 4, weight_rounding::nearest) == whole));
    kept_state kept;
    rounded_on<model>(1, 2, weight_rounding::stochastic, nullptr, &kept);
    BOOST_TEST(kept.numbers.step == 2);
    for (int const after : {1, 2}) {
        auto const rest = rounded_on<model>(after, 4, weight_rounding::stochastic, &kept);
        BOOST_TEST((rest.weights == whole.weights && rest.optimizer_state == whole.optimizer_state), "1 to " << after);
    }
}

BOOST_AUTO_TEST_CASE(micro_batches_that_are_no_subtree_are_refused) {
    for (auto const& [ranks, accumulation] : {std::pair{2, 1}, {2, 6}, {4, 6}, {3, 4}}) {
        auto const expected = "expected a step of " + std::to_string(ranks) + " times 1, 2, 4, ... micro-batches";
        BOOST_CHECK_EXCEPTION(calm_on(ranks, 1, accumulation), error,
                              [&](error const& e) { return e.code() == errc::usage && has(e.what(), expected); });
    }
}

BOOST_AUTO_TEST_CASE(ranks_of_a_limited_time_do_the_same_steps) {
    auto r = steps_of<autoencoder_recipe>(0, 4);
    r.seconds = 0.2;
    r.schedule = learning_rate_schedule::cosine;
    auto const done = run_of<autoencoder_type>(
        4, [&](auto& ctx, auto& model, auto& source, auto const& callbacks, process_group* ranks) {
            train_autoencoder(ctx, model, source, r, callbacks, ranks);
        });
    BOOST_TEST(!done.steps.empty());  // how many depends on the machine
}

BOOST_AUTO_TEST_CASE(non_finite_steps_are_reported_and_skipped_as_by_one_rank) {
    std::vector<std::string> said;
    for (int const R : {1, 2}) {
        auto r = steps_of<autoencoder_recipe>(6, 2);
        r.warmup = 0;
        r.learning_rate = 1e18;
        auto const train = [&](auto& ctx, auto& model, auto& source, auto const& callbacks, process_group* ranks) {
            train_autoencoder(ctx, model, source, r, callbacks, ranks);
        };
        try {
            run_of<autoencoder_type>(R, train);
            said.emplace_back("nothing");
        } catch (error const& e) {
            BOOST_TEST((e.code() == errc::non_finite));
            std::string const text = e.what();
            said.push_back(text.substr(text.find("step ")));
        }
        r.skip_nonfinite = 6;
        auto const left_out = run_of<autoencoder_type>(R, train);
        said.push_back(std::to_string(left_out.steps.size()) + " " + std::to_string(left_out.weights[0]));
    }
    BOOST_TEST(has(said[0], "expected"), said[0]);
    BOOST_TEST(said[2] == said[0]);
    BOOST_TEST(said[3] == said[1]);
}

BOOST_AUTO_TEST_CASE(an_error_of_one_rank_ends_all) {
    auto const r = steps_of<autoencoder_recipe>(6, 4);
    std::vector<std::string> heard(4);
    BOOST_CHECK_EXCEPTION(
        run_of<autoencoder_type>(4,
                                 [&](auto& ctx, auto& model, auto&, auto const& callbacks, process_group* ranks) {
                                     int blocks = 0;
                                     auto const source = [&](std::span<token_id> ids) {
                                         if (++blocks > 8 && ranks->rank() == 2)
                                             throw error(errc::data, "text.txt", "line 3", "is damaged");
                                         std::ranges::fill(ids, 1);
                                     };
                                     try {
                                         train_autoencoder(ctx, model, source, r, callbacks, ranks);
                                     } catch (error const& e) {
                                         heard[static_cast<std::size_t>(ranks->rank())] = e.what();
                                         throw;
                                     }
                                 }),
        error, [](error const& e) { return e.code() == errc::data; });
    for (std::size_t const n : {0U, 1U, 3U}) BOOST_TEST(heard[n] == "rank 2: text.txt, line 3: is damaged");
}

BOOST_AUTO_TEST_CASE(ranks_that_begin_differently_do_not_train) {
    auto r = steps_of<autoencoder_recipe>(2, 2);
    r.warmup = 1;
    BOOST_CHECK_EXCEPTION(run_of<autoencoder_type>(
                              2,
                              [&](auto& ctx, auto& model, auto& source, auto const& callbacks, process_group* ranks) {
                                  if (ranks->rank() == 1) parameters_of(model)[3].value[1] += 1e-6F;
                                  train_autoencoder(ctx, model, source, r, callbacks, ranks);
                              }),
                          error, [](error const& e) {
                              return e.code() == errc::distributed &&
                                     has(e.what(), "checksum of the weights: rank 1 has '");
                          });
    // So do settings that decide when ranks evaluate and save together.
    using change = std::function<void(autoencoder_recipe&)>;
    for (auto const& [name, by] : {std::pair<std::string, change>{"save-every", [](auto& o) { o.save_every = 1; }},
                                   {"evaluate-every", [](auto& o) { o.evaluate_every = 1; }},
                                   {"skip-nonfinite", [](auto& o) { o.skip_nonfinite = 1; }},
                                   {"schedule", [](auto& o) { o.schedule = learning_rate_schedule::cosine; }}})
        BOOST_CHECK_EXCEPTION(run_of<autoencoder_type>(2,
                                                       [&, &alter = by](auto& ctx, auto& model, auto& source,
                                                                        auto const& callbacks, process_group* ranks) {
                                                           auto own = r;
                                                           if (ranks->rank() == 1) alter(own);
                                                           train_autoencoder(ctx, model, source, own, callbacks, ranks);
                                                       }),
                              error, [&option = name](error const& e) {
                                  BOOST_TEST(has(e.what(), option + ": rank 1 has '"), e.what());
                                  return e.code() == errc::distributed;
                              });
}

// Only rank 0 holds and plans for the optimizer state of all ranks, while it is saved; the others have names and sizes.
BOOST_AUTO_TEST_CASE(only_rank_0_has_memory_for_all_optimizer_state) {
    std::array<std::size_t, 3> bytes{}, planned{};
    std::size_t whole = 0;
    on_ranks(3, [&](process_group& ranks) {
        auto const number = static_cast<std::size_t>(ranks.rank());
        owned_model<ar_type> own(11);
        context<> ctx(3, 1);
        initialise(ctx, own.model);
        sharded_optimizer<space<>> shares(ctx, parameters_of(own.model), ranks);
        adamw<space<>> optimizer(parameters_of(own.model), {}, &shares);
        std::size_t share = 0;
        for (auto const& m : optimizer.tensors()) share += m.bytes.size();
        auto const all = optimizer.gather_state();
        for (auto const& m : all) bytes[number] += m.bytes.size();
        if (ranks.is_first()) whole = detail::whole_bytes(all);
        if (all.size() != optimizer.tensors().size() || 2 * share > detail::whole_bytes(all))
            throw error(errc::usage, "a share that is none");
    });
    BOOST_TEST(whole > 0U);
    BOOST_TEST(bytes == (std::array<std::size_t, 3>{whole, 0, 0}), boost::test_tools::per_element());
    on_ranks(2, [&](process_group& ranks) {
        owned_model<ar_type> own(11);
        context<> ctx(3, 1);
        initialise(ctx, own.model);
        counting_source source;
        auto r = steps_of<autoregressive_recipe>(1, 2);
        r.optimizer.muon = 0;
        training_callbacks callbacks;
        callbacks.start = [&](memory_plan const& plan) {
            planned[static_cast<std::size_t>(ranks.rank())] = plan.parts[2].bytes;
        };
        train_autoregressive(ctx, own.model, source, r, callbacks, &ranks);
    });
    BOOST_TEST(planned[0] >= planned[1] / 2 + whole);
    BOOST_TEST(planned[1] < whole);
}
