#pragma once
/// \file
/// The variational term (docs/mathematics/autoencoder.md; Kingma et al. 2016): the KL divergence of N(mean,
/// exp(log_std)^2) from N(0, 1) in nats. Each dimension is clamped from below, so that dimensions already close to N(0,
/// 1) get no gradient.
/// \shows{tests/loss/variational_test.cpp,only_a_dimension_above_the_clamp_has_a_gradient}

#include "calm/tensor/ops/total.hpp"

namespace calm {

namespace detail {
template <class Mean, class LogStd> auto clamped_kl(Mean&& mean, LogStd&& log_std, LogStd&& again, double clamp) {
    return maximum(0.5 * (square(std::forward<Mean>(mean)) + exp(2.0 * std::forward<LogStd>(log_std)) - 1.0) -
                       std::forward<LogStd>(again),
                   clamp);
}
}  // namespace detail

/// Sum over rows and dimensions of max(0.5 (mean^2 + std^2 - 1 - 2 log_std), clamp). mean and log_std: (R, L). Throws
/// errc::usage if the shapes differ.
template <class T, index_t L, class Backend>
auto clamped_kl_sum(context<Backend>& ctx, matrix_view<T, L, Backend> const& mean,
                    matrix_view<T, L, Backend> const& log_std, double clamp) {
    return sum(ctx, detail::clamped_kl(mean, log_std, log_std, clamp));
}

/// Adds clamped_kl_sum to a scalar accumulator, without waiting for the device.
template <class T, index_t L, class Backend>
void add_clamped_kl(context<Backend>& ctx, total_view<Backend> const& total, matrix_view<T, L, Backend> const& mean,
                    matrix_view<T, L, Backend> const& log_std, double clamp) {
    add_sum(ctx, total, detail::clamped_kl(mean, log_std, log_std, clamp));
}

/// Adds the gradient of scale * clamped_kl_sum to dmean and dlog_std, both (R, L). It is 0 where the clamp is active.
template <class T, index_t L, class Backend>
void add_clamped_kl_gradient(context<Backend> const& ctx, matrix_view<T, L, Backend> const& mean,
                             matrix_view<T, L, Backend> const& log_std, matrix_view<T, L, Backend> const& dmean,
                             matrix_view<T, L, Backend> const& dlog_std, double clamp, double scale) {
    differentiate_sum(ctx,
                      detail::clamped_kl(accumulate(mean, dmean), accumulate(log_std, dlog_std),
                                         accumulate(log_std, dlog_std), clamp),
                      scale);
}

}  // namespace calm
