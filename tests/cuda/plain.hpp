#pragma once
// Reference layers in double, one number at a time, without any code of the library.

#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <vector>

#include "on_device.hpp"

namespace calm::test {

using reals = std::vector<double>;

inline reals widened(std::vector<float> const& x) {
    return {x.begin(), x.end()};
}

// c (m, n) += a b, where op(i, k) is an element of the (m, depth) factor a and of the (depth, n) factor b.
template <class A, class B> void add_product(reals& c, std::size_t m, std::size_t n, std::size_t depth, A a, B b) {
    for (std::size_t i = 0; i < m; ++i)
        for (std::size_t j = 0; j < n; ++j)
            for (std::size_t k = 0; k < depth; ++k) c[i * n + j] += a(i, k) * b(k, j);
}

// The rows of x (R, in) times the transposed weights (out, in).
inline reals plain_linear(reals const& x, double const* weights, std::size_t in, std::size_t out) {
    std::size_t const rows = x.size() / in;
    reals y(rows * out);
    add_product(
        y, rows, out, in, [&](std::size_t i, std::size_t k) { return x[i * in + k]; },
        [&](std::size_t k, std::size_t j) { return weights[j * in + k]; });
    return y;
}

// The norms' eps 1e-6 is repeated here because it is part of the reference.
inline reals plain_rms_norm(reals const& x, double const* gain, std::size_t D) {
    reals y(x.size());
    for (std::size_t r = 0; r < x.size(); r += D) {
        double squares = 0;
        for (std::size_t j = 0; j < D; ++j) squares += x[r + j] * x[r + j];
        double const root = std::sqrt(squares / static_cast<double>(D) + 1e-6);
        for (std::size_t j = 0; j < D; ++j) y[r + j] = x[r + j] / root * gain[j];
    }
    return y;
}
// The bias (D) follows the gain (D).
inline reals plain_layer_norm(reals const& x, double const* gain, std::size_t D) {
    reals centred = x;
    for (std::size_t r = 0; r < x.size(); r += D) {
        double mean = 0;
        for (std::size_t j = 0; j < D; ++j) mean += x[r + j] / static_cast<double>(D);
        for (std::size_t j = 0; j < D; ++j) centred[r + j] -= mean;
    }
    reals y = plain_rms_norm(centred, gain, D);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += gain[D + i % D];
    return y;
}

// Gate and up (inner, D), then down (D, inner).
inline reals plain_swiglu(reals const& x, double const* weights, std::size_t D, std::size_t inner) {
    reals gate = plain_linear(x, weights, D, inner);
    reals const up = plain_linear(x, weights + D * inner, D, inner);
    for (std::size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
    return plain_linear(gate, weights + 2 * D * inner, inner, D);
}

// Rotates the halves of every head in rows (positions, heads * size) by position * base^(-2 i / size).
inline void plain_rotate(reals& x, std::size_t width, std::size_t size, double base) {
    for (std::size_t at = 0; at < x.size(); at += size)
        for (std::size_t i = 0; i < size / 2; ++i) {
            double const exponent = -2.0 * static_cast<double>(i) / static_cast<double>(size);
            double const angle = static_cast<double>(at / width) * std::pow(base, exponent);
            double const a = x[at + i];
            double const b = x[at + size / 2 + i];
            x[at + i] = a * std::cos(angle) - b * std::sin(angle);
            x[at + size / 2 + i] = b * std::cos(angle) + a * std::sin(angle);
        }
}

// Causal self-attention of one sequence of rows of D, with one head of keys and values. The weights of queries (D, D),
// keys (size, D), values (size, D) and the output (D, D) follow one another.
inline reals plain_attention(reals const& x, double const* weights, std::size_t D, std::size_t heads, double base) {
    std::size_t const size = D / heads, positions = x.size() / D;
    reals q = plain_linear(x, weights, D, D);
    reals k = plain_linear(x, weights += D * D, D, size);
    reals const v = plain_linear(x, weights += size * D, D, size);
    plain_rotate(q, D, size, base);
    plain_rotate(k, size, size, base);
    reals mixed(x.size());
    for (std::size_t p = 0; p < positions; ++p)
        for (std::size_t head = 0; head < heads; ++head) {
            std::size_t const at = p * D + head * size;
            reals shares(p + 1);
            double total = 0;
            for (std::size_t other = 0; other <= p; ++other) {
                double score = 0;
                for (std::size_t j = 0; j < size; ++j) score += q[at + j] * k[other * size + j];
                total += shares[other] = std::exp(score / std::sqrt(static_cast<double>(size)));
            }
            for (std::size_t other = 0; other <= p; ++other)
                for (std::size_t j = 0; j < size; ++j) mixed[at + j] += shares[other] / total * v[other * size + j];
        }
    return plain_linear(mixed, weights + size * D, D, D);
}

// Compares dx with central differences of sum_i dy[i] f(x)[i] at some elements of x.
inline void check_by_differences(char const* what, std::function<reals(reals const&)> const& f, reals x,
                                 reals const& dy, reals const& dx, double bound) {
    auto const weighed = [&] {
        reals const y = f(x);
        double total = 0;
        for (std::size_t i = 0; i < y.size(); ++i) total += y[i] * dy[i];
        return total;
    };
    double constexpr step = 1e-5;
    for (std::size_t i = 0; i < x.size(); i += 1 + x.size() / 23) {
        double const kept = x[i];
        x[i] = kept + step;
        double const above = weighed();
        x[i] = kept - step;
        double const below = weighed();
        x[i] = kept;
        check_near(what, reals{dx[i]}, reals{(above - below) / (2 * step)}, bound);
    }
}

}  // namespace calm::test
