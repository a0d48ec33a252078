#pragma once
// Shared base of the programs' training of any kind of model. Only files that compile a configuration include it.

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "calm/io/model_directory.hpp"
#include "calm/runs/model_tokenizer.hpp"
#include "calm/text/bigram.hpp"
#include "calm/text/packing.hpp"
#include "calm/text/tokenizer.hpp"
#include "calm/train/detail/peak.hpp"
#include "calm/train/detail/throughput.hpp"
#include "calm/train/loop.hpp"
#include "calm/train/session.hpp"
#include "compiled_loading.hpp"
#include "program.hpp"
#include "registry.hpp"
#include "run/initial_weights.hpp"
#include "run/ranks.hpp"
#include "run/run_plan.hpp"
#include "run/run_record.hpp"
#include "run/training_run.hpp"
#include "stored_work.hpp"
#include "text/prompt.hpp"
#include "text/text_output.hpp"

#ifdef CALM_HAS_NCCL
#include "calm/ranks/nccl.hpp"
#endif

namespace calm::apps {

// A context on a backend, with the seed and the device or thread count from the options.
template <class Backend> context<Backend> context_of(execution_options const& o) {
    if constexpr (std::is_same_v<Backend, cuda>)
        return context<Backend>(o.seed, o.device.number_here());
    else
        return context<Backend>(o.seed, o.threads);
}

// A context for training, which also multiplies in bf16 if the options ask for it.
template <class Backend> context<Backend> context_of(train_options const& o) {
    auto ctx = context_of<Backend>(static_cast<execution_options const&>(o));
    if constexpr (device_memory<Backend>)
        ctx.products_in_bf16 = o.in_bf16;
    else if (o.in_bf16)
        multiply_in_bf16(ctx);
    return ctx;
}

// Constant-initialised, because source files register configurations during dynamic initialisation.
template <class Space> inline constexpr char const* name_of_space = "cpu";
template <> inline constexpr char const* name_of_space<bf16_weights> = "cpu-bf16";
template <> inline constexpr char const* name_of_space<space<emulated>> = "emulated";
template <> inline constexpr char const* name_of_space<space<cuda>> = "cuda";
template <> inline constexpr char const* name_of_space<bf16_weights_on<emulated>> = "emulated-bf16";
template <> inline constexpr char const* name_of_space<bf16_weights_on<cuda>> = "cuda-bf16";

// The NCCL transport between the GPUs of several ranks if each rank has its own GPU, else null. It stays registered as
// ranks()->devices for its lifetime.
template <class Backend>
std::unique_ptr<device_transport> devices_of([[maybe_unused]] context<Backend> const& ctx,
                                             [[maybe_unused]] device_choice const& device) {
#ifdef CALM_HAS_NCCL
    if constexpr (std::is_same_v<Backend, cuda>)
        if (ranks() != nullptr && !device.number)
            return std::make_unique<nccl_devices>(*ranks(), nccl_library(ctx.queue(), ctx.device()));
#endif
    return nullptr;
}

// Describes where and in which precision a model is trained.
template <class Space> std::string place_of(train_options const& o) {
    std::string place = name_of_space<Space>;
    if constexpr (device_memory<typename Space::backend>)
        if (auto const* const all = ranks(); all != nullptr)
            place += sentence(", ", all->ranks(), " ranks that communicate through ",
                              all->devices != nullptr ? all->devices->name() : "host memory");
    if (!o.in_bf16) return place;
    return place +
           (device_memory<typename Space::backend> ? ", products and activations in bf16" : ", products in bf16") +
           (device_memory<typename Space::backend> || has_bf16_products()
                ? ""
                : " without AVX512-BF16 instructions: slower than f32");
}

// Base class: a configuration's name, its defaults, and helpers for its work.
class compiled_model {
protected:
    template <class Model> using backend_of = typename space_of<Model>::backend;

    compiled_model(std::string name, recipes const& defaults) : name_(std::move(name)), defaults_(defaults) {}

    // FLOPs of Muon's products per update. The model is only measured: no weights are allocated.
    template <class Model> static double muon_of(Model model) { return flops::muon(parameters_of(model)); }

    // Supplies a training loop with blocks. Type-erased, so that the loop is compiled once.
    using next_blocks = std::function<void(std::span<token_id>)>;
    static next_blocks next_of(text_blocks& blocks) {
        return [&blocks](std::span<token_id> tokens) { blocks(tokens); };
    }
    // For a run that ends before its first step.
    static next_blocks no_blocks() {
        return [](std::span<token_id>) {};
    }

    static model_files beside(tokenizer const& tokenizer, std::string const& tokenizer_bytes) {
        return {{tokenizer.file_name(), tokenizer_bytes}};
    }

    // On a device, the host waits once per ten steps.
    template <class Backend> static void log_together(training_recipe& recipe) {
        if constexpr (device_memory<Backend>) recipe.log_every = 10;
    }

    // On a device, makes micro-batches as large as its memory allows, unless --accumulation or the resumed run fixes
    // their number. plan(recipe) returns the memory that a run needs.
    template <class Backend, class Recipe, class Plan>
    static void fill_memory(Recipe& recipe, train_options const& o, training_run const& run, Plan const& plan) {
        if constexpr (device_memory<Backend>) {
            if (recipe.accumulation == 1 || o.accumulation || run.from()) return;
            auto const bytes = [&](index_t micro_batches) {
                auto tried = recipe;
                tried.accumulation = micro_batches;
                try {
                    return plan(tried).total();
                } catch (error const& e) {
                    if (e.code() != errc::memory) throw;
                    return std::numeric_limits<std::size_t>::max();
                }
            };
            recipe.accumulation = fewest_micro_batches(recipe.accumulation, ranks() != nullptr ? ranks()->ranks() : 1,
                                                       context_of<Backend>(o).memory, bytes);
        }
    }

    // Reports model size and text. `device` is reported unless it is "cpu".
    void describe(run_report& report, index_t parameters, corpus const& text, tokenizer const& tokenizer,
                  std::string const& device) const {
        report.print_line(formatted("%s: %s parameters to train, vocabulary %d, %zu documents with %zu tokens",
                                    name_.c_str(), grouped(parameters).c_str(), tokenizer.vocabulary_size(),
                                    text.documents(), text.tokens()) +
                          (device == "cpu" ? "" : ", on " + device));
    }

    run_plan plan_of(training_recipe const& recipe, index_t parameters, tokenizer const& tokenizer,
                     text_size const& text, std::size_t heldout, index_t tokens_per_step) const {
        return {.configuration = name_,
                .parameters = parameters,
                .vocabulary = tokenizer.vocabulary_size(),
                .documents = text.documents,
                .tokens = text.tokens,
                .heldout_tokens = heldout,
                .tokens_per_step = tokens_per_step,
                .recipe = recipe};
    }
    static int print_plan(run_plan const& plan, train_options const& o) {
        text_output().put(to_text(plan, o));
        return 0;
    }

    // Throws if the initial model has another configuration.
    static void require_fit(auto const& configuration, tokenizer const& tokenizer,
                            std::optional<stored_model> const& start) {
        if (start) require_match(configuration, tokenizer.vocabulary_size(), *start);
    }

    // max_position_embeddings for a model trained on blocks of `block` positions: at least the default, and at least
    // the value of the model it starts from.
    static index_t positions_of(index_t block, std::optional<stored_model> const& start = {}) {
        index_t const before = start ? start->description.max_position_embeddings : 0;
        return std::max({model_description{}.max_position_embeddings, block, before});
    }

    // Prompt of the training samples: --sample-prompt. A vocabulary without BOS needs at least one patch, so its
    // default prompt is one patch of the first symbol.
    static std::vector<std::vector<token_id>> prompt_of_samples(train_options const& o, tokenizer const& tokenizer,
                                                                index_t K, index_t block) {
        bool const needs_one = o.sample_prompt.empty() && !tokenizer.specials().exist();
        auto prompt = needs_one ? std::vector<token_id>(static_cast<std::size_t>(K), 0)
                                : prompt_tokens(o.sample_prompt, tokenizer, K, positions_of(block / K));
        return {std::move(prompt)};
    }
    // Held-out tokens scored at the end of a run with K tokens per position, and by each evaluation before.
    static std::size_t final_tokens(train_options const& o, index_t K) {
        return static_cast<std::size_t>(o.heldout_positions * K);
    }
    // Fewer in a run of less than ten minutes, which evaluations would fill.
    static std::size_t interval_tokens(train_options const& o, index_t K) {
        double const share = 0.4 * std::clamp(o.minutes.value_or(10) / 10, 0.1, 1.0);
        return static_cast<std::size_t>(K) *
               std::max<std::size_t>(1, static_cast<std::size_t>(share * static_cast<double>(o.heldout_positions)));
    }

    // The functions that a language model supplies to its training run.
    struct learner {
        std::function<void(std::string const&)> write;   // to a directory
        std::function<std::string()> sample;             // generated with the current weights
        std::function<evaluation(std::size_t)> measure;  // on this many held-out tokens
        std::function<std::string()> remark;             // on the matrix products, at the end; may be empty
        std::function<void(training_callbacks const&)> train;
    };
    // Trains a language model of K tokens per position to the end of its run, with samples and scores along the way.
    // Returns the exit status.
    static int learn(training_run& run, training_recipe const& recipe, text_blocks const& blocks,
                     learning_levels const& levels, train_options const& o, index_t K, learner const& model) {
        auto const measure_on_the_way = [&] { return model.measure(interval_tokens(o, K)); };
        std::optional<samples_log> samples;
        if (is_first_rank()) samples.emplace(o.out, run.steps());
        auto const calls = run.callbacks(
            recipe, blocks, model.write,
            [&](progress const& now) {
                if (samples) samples->add(now.step + 1, now.seconds, o.sample_prompt, model.sample());
                return report_evaluation(run.report(), measure_on_the_way(), now, recipe, levels);
            },
            [&] { return score_of(measure_on_the_way()); });
        run.train([&] { model.train(calls); });
        if (run.logs_end())
            log_final(run.report(), model.measure(final_tokens(o, K)), run.steps(), run.seconds(), levels);
        return run.end(model.remark());
    }

    std::string name_;
    recipes defaults_;
};

}  // namespace calm::apps
