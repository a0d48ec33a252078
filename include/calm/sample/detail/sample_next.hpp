#pragma once
// The next patch of many texts at a temperature: an acceptance sampler for each text, with draws in common rounds.
// Sizes: R patches, K tokens per patch, D hidden.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "calm/model/detail/lazy_decoding.hpp"
#include "calm/sample/detail/thread_contexts.hpp"
#include "calm/sample/sampler.hpp"
#include "calm/sample/sampler_cache.hpp"
#include "calm/tensor/detail/core/for_each.hpp"
#include "calm/tensor/detail/core/working_set.hpp"
#include "calm/tensor/detail/device/graph.hpp"
#include "calm/tensor/ops/fill_rows.hpp"
#include "calm/tensor/ops/rows.hpp"

namespace calm {

// The hidden state and the RNG of a patch to sample. Its noise does not depend on its place in a batch. noise.first is
// the number of the patch. Draw d has number first 2^20 + d of the key. Choices begin at block first 2^20 of
// stream::choice under the same seed and step.
struct patch_rng {
    index_t row = 0;  // index of the hidden state
    row_rng noise;    // key and number of the patch
};

namespace detail {

// z (n, L) = rows of L values from anywhere in device memory; one index copies `each` values.
template <class T, index_t L> struct bring_rows {
    T* z;
    T const* const* from;  // (n)
    index_t each;
    CALM_HD void operator()(index_t i) const {
        for (index_t j = i * each; j < (i + 1) * each; ++j) z[j] = from[j / L][j % L];
    }
};

// What makes a batched_sampler faster; each may be null.
template <class Backend> struct sampler_resources {
    token_screen const* screen = nullptr;          // of the model's vocabulary
    thread_contexts<Backend>* separate = nullptr;  // for threads that draw separately
    captured_graph<Backend>* drawing = nullptr;    // of a round of draws
};

// Samples many patches at once, by any rule: every round makes the same number of draws for each undecided patch.
template <class Model, class Backend> class batched_sampler {
public:
    using T = typename Model::scalar;
    using latents = matrix_view<T, Model::L, Backend>;
    using hidden_view = matrix_view<T const, Model::D, Backend>;

    batched_sampler(context<Backend>& ctx, Model const& model, std::span<token_id> tokens, hidden_view const& hidden,
                    sampler const& rule, std::span<patch_rng const> rngs, sampler_resources<Backend> const& with = {}) :
        ctx_(ctx),
        model_(model), tokens_(tokens), hidden_(hidden), rule_(rule), rngs_(rngs), with_(with),
        table_(model.ae_model.vocabulary() * Model::autoencoder_type::D), lazy_(is_lazy()),
        attempt_(lazy_ && rule.rule == sampling_rule::adaptive ? rule.n : 1),
        parts_(with.separate != nullptr && Model::D <= 128 ? with.separate->size() : 1), done_(rngs.size()),
        answers_(lazy_ ? rngs.size() : 0) {
        for (std::size_t r = 0; r < rngs.size(); ++r) {
            auto const& [key, first] = rngs[r].noise;
            random_sequence choice({key.seed, stream::choice, key.step},
                                   static_cast<std::uint64_t>(first * draws_apart));
            acceptance_sampler const at_work(rule, K, choice);
            active_.push_back({r, at_work, choice, {}});
        }
    }

    // Puts the patches into `tokens` and returns what each took. Rounds have `round` draws per patch; 0 is automatic.
    std::vector<sampling_cost> run(std::int64_t round) {
        arena_scope const kept(ctx_.workspace);  // latents of all rounds
        while (!active_.empty()) {
            n_ = draws_of_a_round(round);
            draw_round();
            if (counts() || (lazy_ && active_.front().at_work.draws_left() == n_)) decode_pools();
            std::span<token_id const> rest = drawn_;
            for (auto& one : active_) {
                take(one, rest.first(static_cast<std::size_t>(n_) * K));
                rest = rest.subspan(static_cast<std::size_t>(n_) * K);
            }
            std::erase_if(active_, [](active_patch const& one) { return one.at_work.decided(); });
        }
        if (lazy_) decode(tokens_, answers_, {1, 1, rngs_.size()});
        return std::move(done_);
    }

private:
    static constexpr auto K = static_cast<std::size_t>(Model::K);
    static constexpr std::int64_t largest = 1024;           // most draws per patch and round: limits memory
    static constexpr index_t decoded_at_once = 1 << 14;     // patches, on the host: limits memory
    static constexpr index_t draws_apart = sampler::limit;  // between the draw numbers of two patches

    struct active_patch {
        std::size_t number;
        acceptance_sampler at_work;
        random_sequence choice;
        std::vector<T const*> drawn;  // latent of each draw, if tokens may be missing
    };

    // Whether decoding token by token saves more than the extra passes cost: not with a small table.
    [[nodiscard]] bool is_lazy() const {
        constexpr index_t worthwhile = index_t{1} << 18;
        return rule_.max_draws > 1 && rule_.max_draws <= largest &&
               (rule_.rule == sampling_rule::adaptive || (rule_.rule == sampling_rule::batch && table_ >= worthwhile));
    }
    // Whether draws are counted before they are fully decoded.
    [[nodiscard]] bool counts() const { return lazy_ && rule_.rule == sampling_rule::batch; }
    [[nodiscard]] index_t count() const { return static_cast<index_t>(active_.size()); }

    [[nodiscard]] std::int64_t draws_of_a_round(std::int64_t round) const {
        bool const batch = rule_.rule == sampling_rule::batch;  // a patch may decide early and leave the rounds
        std::int64_t least = batch ? largest : 0, most = 0, made = 0;
        for (auto const& one : active_) {
            std::int64_t const needed = one.at_work.draws_needed();
            least = batch ? std::min(least, needed) : std::max(least, needed);
            most = std::max(most, one.at_work.draws_left());
            made = std::max(made, one.at_work.result().draws);
        }
        std::int64_t n = round > 0 ? std::max(round, attempt_) : round_size(rule_.rule, least, made, count());
        // On a device a round takes long whatever its size: the host waits for the tokens of each place of a patch.
        if (device_memory<Backend> && round == 0 && batch) n = std::max(n, made / 2);
        if (round == 0 && most - n < n / 4) n = most;  // avoids an extra round for the last few draws
        n = std::min({n, most, largest});
        return n > attempt_ ? n - n % attempt_ : n;
    }

    // drawn_ = n_ draws for every active patch.
    void draw_round() {
        drawn_.resize(static_cast<std::size_t>(count() * n_) * K);
        latents z{};
        if (lazy_) z = ctx_.workspace.template take<T>(extents<dyn, Model::L>(count() * n_));
        for (index_t i = 0; lazy_ && i < count(); ++i)
            for (index_t draw = i * n_; draw < (i + 1) * n_; ++draw)
                active_[static_cast<std::size_t>(i)].drawn.push_back(z.data() + draw * Model::L);
        if constexpr (device_memory<Backend>)
            if (with_.drawing != nullptr && count() <= Model::positions_drawn_at_once(ctx_, n_))
                return draw_captured(z);
        arena_scope const workspace(ctx_.workspace);
        arena_scope const saved(ctx_.saved);
        auto const states = gather_hidden_states();
        if (parts_ == 1 || count() * n_ > 128) return draw(ctx_, states, z, 0, count(), 0, n_);
        if constexpr (host_memory<Backend>) {
            bool const by_patches = count() > 1;
            with_.separate->in_parts(ctx_, by_patches ? count() : n_, by_patches ? 1 : attempt_,
                                     [&](context<Backend>& by, index_t begin, index_t end) {
                                         by_patches ? draw(by, states, z, begin, end - begin, 0, n_)
                                                    : draw(by, states, z, 0, 1, begin, end);
                                     });
        }
    }

    // Hidden states of the active patches, contiguous in ctx.workspace; noise_ gets the RNGs of their draws.
    hidden_view gather_hidden_states() {
        auto const states = ctx_.workspace.template take<T>(extents<dyn, Model::D>(count()));
        noise_.clear();
        rows_.clear();
        for (auto const& one : active_) {
            auto const& rng = rngs_[one.number];
            rows_.push_back(static_cast<row_id>(rng.row));
            noise_.push_back({rng.noise.draws, rng.noise.first * draws_apart + one.at_work.result().draws});
        }
        gather_rows(ctx_, states, hidden_, ids_to_device(ctx_, std::span<row_id const>(rows_), hidden_.extent(0)));
        return states;
    }

    // A round on a device, as a captured graph.
    void draw_captured(latents const& z) {
        arena_scope const scope(ctx_.workspace);
        auto const room = output_buffer(ctx_, std::span(drawn_).first(lazy_ ? 0 : drawn_.size()));
        (*with_.drawing)(ctx_, {count(), n_, hidden_.data(), rule_.noise_scale}, [&] {
            arena_scope const workspace(ctx_.workspace);
            arena_scope const saved(ctx_.saved);
            auto const states = gather_hidden_states();
            if (lazy_)
                model_.sample_latents(ctx_, z, states, noise_);
            else
                model_.sample_patches(ctx_, room, states, n_, noise_, rule_.noise_scale, with_.screen);
        });
        if (!lazy_) return copy_patches_to_host(ctx_, std::span(drawn_), room);
        std::fill(drawn_.begin(), drawn_.end(), not_decoded);
        if (counts()) return;  // decoded together with earlier draws
        model_.ae_model.decode_lazily(ctx_, drawn_, z, groups_of_round(n_), with_.screen);
    }
    // Groups for lazy decoding in a round of `draws` per patch.
    [[nodiscard]] lazy_groups groups_of_round(index_t draws) const {
        return counts() ? groups_of(draws, 2) : groups_of(std::min(n_, attempt_), attempt_);
    }

    // Draws begin .. end - 1 for `some` patches from i.
    void draw(context<Backend>& by, hidden_view const& states, latents const& z, index_t i, index_t some, index_t begin,
              index_t end) {
        std::vector<row_rng> own(noise_.begin() + i, noise_.begin() + i + some);
        for (auto& rng : own) rng.first += begin;
        index_t const first = i * n_ + begin, drawing = some * (end - begin);
        auto const patches =
            std::span(drawn_).subspan(static_cast<std::size_t>(first) * K, static_cast<std::size_t>(drawing) * K);
        auto const of = rows(states, i, some);
        if (!lazy_) {
            arena_scope const scope(by.workspace);
            auto const room = output_buffer(by, patches);
            model_.sample_patches(by, room, of, end - begin, own, rule_.noise_scale, with_.screen);
            return copy_patches_to_host(by, patches, room);
        }
        model_.sample_lazily(by, patches, rows(z, first, drawing), of, end - begin, own, groups_of_round(end - begin),
                             with_.screen);
    }

    // Hands a patch its draws (n_, K) of the round. If it decides, stores its answer, in which tokens may be missing.
    void take(active_patch& one, std::span<token_id const> own) {
        one.at_work.take(own, one.choice);
        if (!one.at_work.decided()) return;
        auto const patch = one.at_work.patch();
        std::copy(patch.begin(), patch.end(), tokens_.subspan(one.number * K, K).begin());
        if (lazy_) answers_[one.number] = one.drawn[one.at_work.chosen()];
        done_[one.number] = one.at_work.result();
    }

    // Decodes the missing tokens of patches (R, K) with these latents (R), in whole groups of neighbours. Chunks are as
    // large as memory allows, because each reads the whole vocabulary table.
    void decode(std::span<token_id> patches, std::span<T const* const> of, lazy_groups groups) {
        auto const bytes = static_cast<std::size_t>(Model::autoencoder_type::numbers_per_patch) * sizeof(T);
        auto const at_once = static_cast<std::size_t>(rows_at_once(ctx_, decoded_at_once, bytes));
        std::size_t const most = std::max<std::size_t>(1, at_once / groups.size) * groups.size;
        for (std::size_t first = 0; first < of.size(); first += most) {
            auto const some = of.subspan(first, std::min(most, of.size() - first));
            arena_scope const scope(ctx_.workspace);
            auto const z = ctx_.workspace.template take<T>(extents<dyn, Model::L>(std::ssize(some)));
            index_t const each = host_memory<Backend> ? Model::L : 1;
            for_each(ctx_, z.size() / each, bring_rows<T, Model::L>{z.data(), upload(ctx_, some).data(), each});
            model_.ae_model.decode_lazily(ctx_, patches.subspan(first * K, some.size() * K), z, groups, with_.screen);
        }
    }

    // Lazily decodes the pools of all active patches, including this round's draws.
    void decode_pools() {
        auto const made = active_.front().at_work.result().draws;  // equal for all active patches
        auto const old = static_cast<std::size_t>(made) * K, fresh = static_cast<std::size_t>(n_) * K;
        pools_.resize(static_cast<std::size_t>(count()) * (old + fresh));
        of_pools_.clear();
        for (auto const& one : active_) of_pools_.insert(of_pools_.end(), one.drawn.begin(), one.drawn.end());
        auto const for_each_patch = [&](auto const& f) {
            std::span<token_id> round = drawn_, pools = pools_;
            for (auto& one : active_) {
                f(one.at_work.draws(), round.first(fresh), pools.first(old), pools.subspan(old, fresh));
                round = round.subspan(fresh);
                pools = pools.subspan(old + fresh);
            }
        };
        auto const put = [](std::span<token_id const> from, std::span<token_id> to) {
            std::copy(from.begin(), from.end(), to.begin());
        };
        for_each_patch(
            [&](auto draws, auto round, auto before, auto behind) { put(draws, before), put(round, behind); });
        decode(pools_, of_pools_, groups_of(made + n_, 2));
        for_each_patch(
            [&](auto draws, auto round, auto before, auto behind) { put(before, draws), put(behind, round); });
    }

    // A table that fits in no cache is read again for each token. This follows from sizes alone: texts do not depend on
    // the machine.
    [[nodiscard]] lazy_groups groups_of(index_t size, index_t least) const {
        constexpr index_t held = index_t{1} << 22;
        return {static_cast<std::size_t>(size), static_cast<std::size_t>(least), std::size_t{table_ <= held ? 0U : 8U}};
    }

    context<Backend>& ctx_;
    Model const& model_;
    std::span<token_id> tokens_;
    hidden_view hidden_;
    sampler const& rule_;
    std::span<patch_rng const> rngs_;
    sampler_resources<Backend> with_;
    index_t table_;  // elements of the decoder's vocabulary projection
    // Lazy decoding: rules that only compare draws decode tokens while draws agree, and keep the latents for later.
    bool lazy_;
    // The adaptive rule compares the draws of an attempt, so its rounds are whole attempts.
    std::int64_t attempt_;
    // Threads draw separately where weights fit in a core's cache and products are too small to split.
    index_t parts_;
    std::vector<active_patch> active_;
    std::vector<sampling_cost> done_;
    std::vector<T const*> answers_;   // latents of the answers, if tokens may be missing
    std::int64_t n_ = 0;              // draws per patch in this round
    std::vector<token_id> drawn_;     // (active, n_, K)
    std::vector<token_id> pools_;     // (active, draws so far, K)
    std::vector<T const*> of_pools_;  // (active, draws so far) latents
    std::vector<row_rng> noise_;
    std::vector<row_id> rows_;  // hidden state of every active patch
};

}  // namespace detail

// Fills tokens (R, K) with one patch per element of rngs, sampled by the rule from the hidden states (any, D) of their
// rows; returns what each patch took. Noise does not depend on other patches or on rounds; only the last bits of sums
// may. `round` 0 is automatic. `sampler_state` is null or belongs to this context and model. Throws errc::usage unless
// there is room for one patch per element of rngs.
template <class Model, class Backend>
std::vector<sampling_cost> sample_next(context<Backend>& ctx, Model const& model, std::span<token_id> tokens,
                                       matrix_view<typename Model::scalar const, Model::D, Backend> const& hidden,
                                       sampler const& rule, std::span<patch_rng const> rngs, std::int64_t round = 0,
                                       sampler_cache<Backend>* sampler_state = nullptr) {
    require(tokens.size() == rngs.size() * static_cast<std::size_t>(Model::K), errc::usage,
            "calm::sample_next: expected room for ", rngs.size(), " patches of ", Model::K, " tokens, found room for ",
            tokens.size(), " tokens");
    detail::sampler_resources<Backend> with;
    if (sampler_state != nullptr)
        with = {sampler_state->screen.get(), &sampler_state->separate, &sampler_state->drawing};
    return detail::batched_sampler(ctx, model, tokens, hidden, rule, rngs, with).run(round);
}

// Totals of sampling many patches.
struct sampling_totals {
    index_t patches = 0;  // sampled
    index_t draws = 0;    // patches drawn from the head for them
    index_t capped = 0;   // patches at which the exact rule gave up

    // Adds one patch.
    void add(sampling_cost const& one) {
        ++patches;
        draws += one.draws;
        capped += one.capped ? 1 : 0;
    }
    void add(sampling_totals const& more) {
        patches += more.patches;
        draws += more.draws;
        capped += more.capped;
    }
};

// Fills tokens (R, N, K) with N patches for every hidden state (R, D), by the rule, and returns what they took. Sample
// n of row r is patch number rngs[r].first + n; if one draw decides, its noise has that number too. The screen is for
// the model's vocabulary, or null. All threads share every product, so their number changes no bit.
template <class Model, class Backend>
sampling_totals sample_many(context<Backend>& ctx, Model const& model, std::span<token_id> tokens,
                            matrix_view<typename Model::scalar const, Model::D, Backend> const& hidden, index_t samples,
                            sampler const& rule, std::span<row_rng const> rngs, token_screen const* screen = nullptr) {
    if (rule.max_draws == 1) {
        arena_scope const scope(ctx.workspace);
        auto const room = output_buffer(ctx, tokens);
        model.sample_patches(ctx, room, hidden, samples, rngs, rule.noise_scale, screen);
        copy_patches_to_host(ctx, tokens, room);
        index_t const made = hidden.extent(0) * samples;
        return {.patches = made, .draws = made};
    }
    std::vector<patch_rng> each;
    for (index_t r = 0; r < hidden.extent(0); ++r) {
        auto const& [draws, first] = rngs[static_cast<std::size_t>(r)];
        for (index_t n = 0; n < samples; ++n) each.push_back({r, {draws, first + n}});
    }
    std::span<patch_rng const> const all(each);
    sampling_totals total;
    for (auto const& one :
         detail::batched_sampler<Model, Backend>(ctx, model, tokens, hidden, rule, all, {.screen = screen}).run(0))
        total.add(one);
    return total;
}

}  // namespace calm
