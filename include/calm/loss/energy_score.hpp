#pragma once
/// \file
/// The energy score (Gneiting and Raftery 2007; docs/mathematics/energy.md) and its gradient, computed in one pass that
/// stores neither targets nor differences.
/// \shows{tests/loss/energy_score_test.cpp,pieces_equal_the_whole}

#include <type_traits>

#include "calm/loss/detail/block/energy_score.hpp"
#include "calm/loss/detail/energy_score.hpp"
#include "calm/loss/targets.hpp"
#include "calm/tensor/core/context.hpp"

namespace calm {

/// score[r] = 1 / (N (N - 1)) sum over n != k of |x_rn - x_rk|^beta - 2 / (N M) sum over n, m of |x_rn - y_rm|^beta.
/// Higher is better. The gradient dx is taken of -dscore * (sum of the scores); dscore = 1 / R gives the loss
/// -mean(score).
/// Shapes: score (R), dx (R, N, L) or an empty view, x (R, N, L), mean and log_std (R, L). The targets are
/// drawn_targets or given_targets. Types: float, double or std::complex<double>. Throws errc::usage unless N >= 2, M >=
/// 1 and 0 < beta < 2.
/// Equal vectors have distance 0 and gradient 0. The result does not depend on the number of threads. All workspace
/// taken from ctx.workspace is released.
template <class Backend, class X, class Targets, class T = typename X::value_type>
void energy_score(context<Backend>& ctx, std::type_identity_t<view<T, extents<dyn>, Backend>> score,
                  std::type_identity_t<view<T, extents<dyn, dyn, dyn>, Backend>> dx, X const& x,
                  std::type_identity_t<view<T const, extents<dyn, dyn>, Backend>> mean,
                  std::type_identity_t<view<T const, extents<dyn, dyn>, Backend>> log_std, Targets const& targets,
                  double beta, index_t M, double dscore = 1.0) {
    static_assert(X::extents_type::rank == 3, "calm::energy_score: the samples are of shape (R, N, L)");
    constexpr bool drawn = std::is_same_v<Targets, drawn_targets>;
    static_assert(
        drawn || std::is_same_v<Targets, given_targets<T, Backend>>,
        "calm::energy_score: targets must be drawn_targets, or given_targets of the samples' scalar type and backend");
    index_t const R = x.extent(0);
    index_t const N = x.extent(1);
    index_t const L = x.extent(2);
    require(N >= 2, errc::usage, "calm::energy_score: expected N >= 2 samples per position, found ", N,
            "; with one there are no pairs, raise the number of samples");
    require(M >= 1, errc::usage, "calm::energy_score: expected M >= 1 targets per position, found ", M);
    require(beta > 0.0 && beta < 2.0, errc::usage, "calm::energy_score: expected 0 < beta < 2, found ", beta,
            "; outside the score is not strictly proper");
    extents<dyn, dyn> const latents{R, L};
    require(score.extent(0) == R && mean.extents() == latents && log_std.extents() == latents, errc::usage,
            "calm::energy_score: samples ", x.extents(), " need ", R, " scores and means and log_stds ", latents,
            ", found ", score.extent(0), ", ", mean.extents(), " and ", log_std.extents());
    require(dx.data() == nullptr || dx.extents() == x.extents(), errc::usage, "calm::energy_score: the gradient ",
            dx.extents(), " must have the shape of the samples, ", x.extents());
    if constexpr (!drawn)
        require(targets.eps.extents() == extents<dyn, dyn, dyn>(M, R, L), errc::usage,
                "calm::energy_score: expected noise of shape (M, R, L) = ", extents<dyn, dyn, dyn>(M, R, L), ", found ",
                targets.eps.extents());
    detail::run_energy_score(ctx,
                             detail::energy_problem<T>{score.data(), dx.data(), x.data(), mean.data(), log_std.data(),
                                                       R, N, M, L, beta, dscore},
                             targets);
}

}  // namespace calm
