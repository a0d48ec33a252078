#pragma once
/// \file
/// How well an autoencoder reconstructs the tokens of unseen text (docs/mathematics/autoencoder.md). Sizes: K tokens
/// per patch, L latent.
/// \shows{tests/evaluate/evaluate_test.cpp,a_decoded_pad_is_no_right_token}

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "calm/evaluate/distributed_evaluation.hpp"
#include "calm/evaluate/evaluation.hpp"
#include "calm/loss/detail/token_screen.hpp"
#include "calm/model/autoencoder.hpp"
#include "calm/tensor/ops/rows.hpp"

namespace calm {

/// Scores patches that come one after another. Each patch has the noise of its number, its position in
/// stream::posterior. With several ranks each computes some of the chunks. Context and model outlive it.
template <autoencoder_configuration C, class Space> class autoencoder_scoring {
    using T = typename Space::scalar;
    using Backend = typename Space::backend;

public:
    using model_type = autoencoder<C, Space>;  ///< the scored model
    static constexpr index_t K = model_type::K;
    static constexpr index_t L = model_type::L;

    /// Accuracies exclude `pad` tokens; the noise uses `seed`. The screen is for the model's vocabulary, or null.
    autoencoder_scoring(context<Backend>& ctx, autoencoder<C, Space> const& model, token_id pad, std::uint64_t seed,
                        process_group* ranks = nullptr, token_screen const* screen = nullptr) :
        ctx_(ctx),
        model_(model), pad_(pad), noise_{seed, stream::posterior, 0}, ranks_(ranks), screen_(screen),
        sums_(ranks, [this](sums const& one) { take(one); }) {}

    /// Adds the K tokens of one patch.
    void add(index_t number, std::span<token_id const> patch) {
        numbers_.push_back(number);
        tokens_.insert(tokens_.end(), patch.begin(), patch.end());
        if (static_cast<index_t>(numbers_.size()) == chunk) score();
    }

    /// The evaluation of all patches added. Throws errc::data if they hold only PAD.
    autoencoder_evaluation result() {
        score();
        sums_.end(chunk_);
        std::array counts{patches_, counted_, right_, right_posterior_};
        detail::all_reduce(ranks_, counts);
        patches_ = counts[0], counted_ = counts[1], right_ = counts[2], right_posterior_ = counts[3];
        require(counted_ > 0, errc::data,
                "calm::evaluate_autoencoder: expected a token that is not PAD, found none; give more text, or score "
                "more of it");
        auto const ratio = [](auto part, index_t whole) {
            return static_cast<double>(part) / static_cast<double>(whole);
        };
        return {ratio(right_, counted_), ratio(right_posterior_, counted_), ratio(std_sum_, patches_ * L),
                ratio(loss_sum_, patches_ * K), patches_};
    }

private:
    static constexpr index_t chunk = 512;  // patches

    // Of one chunk.
    struct sums {
        double std = 0, loss = 0;
    };
    void take(sums const& one) {
        std_sum_ += one.std;
        loss_sum_ += one.loss;
    }

    void score() {
        if (numbers_.empty()) return;
        if (detail::is_done_here(ranks_, chunk_)) score_chunk();
        ++chunk_;
        numbers_.clear();
        tokens_.clear();
    }
    void score_chunk() {
        auto const n = static_cast<index_t>(numbers_.size());
        arena_scope const saved(ctx_.saved);
        arena_scope const workspace(ctx_.workspace);
        auto const want = unique_ids_to_device(ctx_, std::span<token_id const>(tokens_), model_.vocabulary());
        auto const posterior = model_.posterior(ctx_, want);
        auto const got = ctx_.workspace.template take<token_id>(extents<dyn>(want.ids.size()));
        auto const count_right = [&] {
            auto const found = to_host(ctx_, got, found_);
            index_t hits = 0;
            for (std::size_t i = 0; i < tokens_.size(); ++i) hits += tokens_[i] != pad_ && found[i] == tokens_[i];
            return hits;
        };
        model_.decode_tokens(ctx_, got, posterior.mean, screen_);
        right_ += count_right();
        auto const z = ctx_.workspace.template take<T>(extents<dyn, L>(n));
        fill_noise(z);
        evaluate(ctx_, z, posterior.mean + exp(posterior.log_std) * z);
        matrix_view<T const, model_type::D, Backend> const decoded = model_.decode(ctx_, z).y;  // (n K, D)
        model_.choose_tokens(ctx_, got, decoded, screen_);
        right_posterior_ += count_right();
        auto const losses = ctx_.workspace.template take<T>(extents<dyn>(n * K));
        cross_entropy(ctx_, losses, {}, {}, decoded, model_.embed_tokens.weight.read(), want.ids, 0);
        sums sum;
        for (T const loss : to_host(ctx_, losses, numbers_found_)) sum.loss += static_cast<double>(loss);
        for (T const one : to_host(ctx_, posterior.log_std, numbers_found_))
            sum.std += std::exp(static_cast<double>(one));
        sums_.add(chunk_, sum);
        counted_ += n * K - std::count(tokens_.begin(), tokens_.end(), pad_);
        patches_ += n;
    }

    // Fills in the noise of every patch, consecutive patches at once.
    void fill_noise(matrix_view<T, L, Backend> const& z) {
        for (std::size_t i = 0, j = 0; i < numbers_.size(); i = j) {
            for (j = i + 1; j < numbers_.size() && numbers_[j] == numbers_[j - 1] + 1;) ++j;
            fill_normal(ctx_, rows(z, static_cast<index_t>(i), static_cast<index_t>(j - i)), noise_,
                        static_cast<std::uint64_t>(numbers_[i] * L));
        }
    }

    context<Backend>& ctx_;
    model_type const& model_;
    token_id pad_;
    key noise_;
    process_group* ranks_;  // null for one rank
    token_screen const* screen_;
    std::vector<index_t> numbers_;  // of patches not scored yet
    std::vector<token_id> tokens_;  // (numbers, K)
    std::vector<token_id> found_;   // host buffers for the results of a device:
    std::vector<T> numbers_found_;
    detail::piece_results<sums> sums_;
    index_t chunk_ = 0;  // number of the current chunk
    index_t patches_ = 0, counted_ = 0, right_ = 0, right_posterior_ = 0;
    double std_sum_ = 0, loss_sum_ = 0;
};

/// Evaluates whole patches, numbered from 0; several ranks may share the work. Throws errc::usage for incomplete
/// patches and errc::data if there is only PAD.
template <autoencoder_configuration C, class Space>
autoencoder_evaluation evaluate_autoencoder(context<typename Space::backend>& ctx, autoencoder<C, Space> const& model,
                                            std::span<token_id const> tokens, token_id pad, std::uint64_t seed,
                                            process_group* ranks = nullptr) {
    constexpr auto K = static_cast<std::size_t>(C.patch_size);
    require(tokens.size() % K == 0, errc::usage, "calm::evaluate_autoencoder: expected whole patches of ", K,
            " tokens, found ", tokens.size(), " tokens");
    auto const screen = screen_if_faster<typename Space::scalar>(ctx, model.embed_tokens.weight.read());
    autoencoder_scoring<C, Space> scores(ctx, model, pad, seed, ranks, screen.get());
    for (std::size_t p = 0; p < tokens.size() / K; ++p) scores.add(static_cast<index_t>(p), tokens.subspan(p * K, K));
    return scores.result();
}

}  // namespace calm
