#include "stored_work.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "calm/base/detail/file.hpp"
#include "calm/runs/detail/loaded_model.hpp"
#include "calm/runs/model_tokenizer.hpp"
#include "calm/sample/stop_strings.hpp"
#include "calm/text/bigram.hpp"
#include "calm/train/detail/throughput.hpp"
#include "program.hpp"
#include "run/evaluation_progress.hpp"
#include "run/ranks.hpp"
#include "run/seen_text.hpp"
#include "text/batch.hpp"
#include "text/generation.hpp"
#include "text/generation_on_ranks.hpp"
#include "text/prompt.hpp"
#include "text/text_data.hpp"
#include "text/write_prompts.hpp"

namespace calm::apps {

namespace {

std::unique_ptr<loaded_model> load(loading const& from, stored_model const& stored, tokenizer const& tokenizer,
                                   execution_options const& o, head_numbers const& sampling,
                                   held_weights weights = held_weights::f32) {
    auto model = from.load(stored, tokenizer.vocabulary_size(), tokenizer.specials(),
                           {.threads = o.threads,
                            .device = o.device.number_here(),
                            .seed = o.seed,
                            .in_int8 = weights == held_weights::int8});
    model->change_sampling([&](field_values& values) { take(values, sampling); });
    return model;
}

// Block length for an evaluation: --block, else as in training, else 256 tokens.
index_t evaluation_block(evaluate_options const& o, model_description const& d, index_t K) {
    index_t const trained_on =
        d.calm && d.calm->data && d.calm->data->block_tokens > K ? d.calm->data->block_tokens : 256;
    return o.block > 0 ? o.block : trained_on;
}

// The token counts stored with a language model.
std::optional<bigram_table> counts_beside(stored_model const& model) {
    auto const path = model.path(bigram_file);
    return is_there(path) ? std::optional(bigram_table::load(path)) : std::nullopt;
}

// Reports slow ways that a device took.
void log_unsupported(loaded_model const& model) {
    if (auto const remark = remark_on(model.unsupported()); !remark.empty()) log_line(remark);
}

}  // namespace

bool is_autoregressive(stored_model const& stored) {
    return stored.description.kind == model_kind::autoregressive;
}

index_t tokens_per_position(stored_model const& stored) {
    return is_autoregressive(stored) ? 1 : stored.sizes.autoencoder.patch_size;
}

evaluation completed(evaluation found, packing mode, data_options const& data, std::uint64_t data_seed) {
    found.mode = mode_name(mode);
    add_optimum(found, data, data_seed);
    return found;
}

evaluation evaluate_stored(loading const& from, evaluate_options const& o, stored_model const& stored) {
    auto const& d = stored.description;
    bool const by_tokens = is_autoregressive(stored);
    bool const is_autoencoder = d.kind == model_kind::autoencoder;
    index_t const K = tokens_per_position(stored);
    auto const tokenizer = load_tokenizer(stored);
    log_seen_text(stored, o.data);
    auto const data_seed = data_seed_of(o.data, &stored);
    any_evaluation_settings const settings{.block_tokens = evaluation_block(o, d, K),
                                           .samples = o.samples,
                                           .seed = o.seed,
                                           .positions = o.positions,
                                           .sampler = by_tokens
                                                          ? any_sampler(token_sampler_of(o.sampler, o.temperature))
                                                          : any_sampler(sampler_of(o.sampler, o.temperature, o.pool))};
    auto const mode =
        packing_for(is_autoencoder ? packed_for::autoencoder : packed_for::language_model, o.data, tokenizer, &stored);
    auto const blocks = with_progress(
        evaluation_blocks_of(o.data, tokenizer, {mode, static_cast<std::size_t>(K), data_seed}, settings.block_tokens),
        o.positions);
    auto const model = load(from, stored, tokenizer, o, o.head, o.weights);
    auto const counts = is_autoencoder ? std::nullopt : counts_beside(stored);
    auto const bytes = by_tokens ? bytes_of_tokens(tokenizer) : std::vector<index_t>();
    auto const found = model->evaluate(blocks, counts ? &*counts : nullptr, bytes, settings, ranks());
    log_unsupported(*model);
    return completed(found, mode, o.data, data_seed);
}

int generate_stored(loading const& from, generate_options const& o, stored_model const& stored) {
    require(stored.description.kind != model_kind::autoencoder, errc::config, stored.directory,
            ": expected a CALM, found an autoencoder, which generates no text by itself");
    index_t const K = tokens_per_position(stored);
    auto const unit = is_autoregressive(stored) ? generation_unit::token : generation_unit::patch;
    index_t const positions = stored.description.max_position_embeddings;
    auto const tokenizer = load_tokenizer(stored);
    auto const model = load(from, stored, tokenizer, o, o.head, o.weights);
    auto settings = generation_settings_of(o, is_autoregressive(stored));
    settings.ends = stored.ends;
    stop_strings const stops(o.stop);
    auto const texts_of = [&](std::span<std::vector<token_id> const> prompts, std::uint32_t first,
                              token_callback const& on_tokens) {
        auto numbered = settings;
        numbered.prompt_number = first;
        stop_watch watch(stops, tokenizer, prompts.size());
        return model->generate(prompts, numbered, [&](std::size_t prompt, std::span<token_id const> fresh) {
            on_tokens(prompt, fresh);
            return watch.continues(prompt, fresh);
        });
    };
    message_limits const most{tokenizer.vocabulary_size(), std::min<index_t>(positions * K, longest_prompt),
                              o.max_tokens};
    return on_all_ranks(most, texts_of, [&](write_with_callback const& write) {
        int const status = o.jsonl.empty() ? write_prompts(o, tokenizer, K, unit, write, positions)
                                           : answer_batch(o, tokenizer, K, unit, without_callback(write), positions);
        log_unsupported(*model);
        return status;
    });
}

std::vector<std::vector<float>> latents_of_texts(loading const& from, stored_model const& stored,
                                                 tokenizer const& tokenizer,
                                                 std::vector<std::vector<token_id>> const& texts) {
    auto const model = load(from, stored, tokenizer, {}, {});
    std::vector<std::vector<float>> all;
    all.reserve(texts.size());
    for (auto const& ids : texts) all.push_back(model->latents(ids));
    return all;
}

double seconds_per_patch(loading const& from, execution_options const& o, stored_model const& stored) {
    constexpr index_t patches = 64;
    index_t const K = tokens_per_position(stored);
    auto const tokenizer = load_tokenizer(stored);
    auto const model = load(from, stored, tokenizer, o, {});
    std::vector<std::vector<token_id>> const prompt{std::vector<token_id>(static_cast<std::size_t>(K), 0)};
    any_generation_settings const settings{.sampler = is_autoregressive(stored)
                                                          ? any_sampler(token_sampler::unchanged())
                                                          : any_sampler(sampler::unchanged()),
                                           .max_tokens = patches * K,
                                           .seed = o.seed,
                                           .ends = {-1}};  // so that no text ends early
    double const start = steady_seconds();
    auto const made = model->generate(prompt, settings, [](std::size_t, std::span<token_id const>) { return true; });
    return (steady_seconds() - start) / static_cast<double>(made.front().patches);
}

}  // namespace calm::apps
