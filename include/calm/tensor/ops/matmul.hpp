#pragma once
/// \file
/// Products of matrices, destination first: matmul(ctx, y, x, transposed(w)). A product may add a bias and a residual,
/// normalise its first factor (prologue), multiply it by several matrices side by side, and apply SiLU or SwiGLU to the
/// result (epilogue). Block backends fuse the residual; devices fuse the others if there are few rows.
/// \shows{tests/tensor/matmul_test.cpp,products_of_complex_numbers}

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "calm/base/bf16.hpp"
#include "calm/base/detail/tuple.hpp"
#include "calm/tensor/core/activations.hpp"
#include "calm/tensor/core/tensor.hpp"
#include "calm/tensor/detail/kernels/block/rows.hpp"
#include "calm/tensor/detail/kernels/block/widened_product.hpp"
#include "calm/tensor/detail/kernels/cpu/matmul.hpp"
#include "calm/tensor/expr/expr.hpp"
#include "calm/tensor/ops/norm.hpp"
#include "calm/tensor/ops/silu.hpp"

namespace calm {

namespace detail {

// An operand without its static sizes, so that products are compiled once per scalar type.
template <class T> struct plain_operand {
    T const* data;                  // first element
    index_t rows;                   // as seen by the product
    index_t columns;                // as seen by the product
    index_t stride;                 // between rows as stored
    bool is_transposed;             // whether the product's rows are stored as columns
    bf16 const* rounded = nullptr;  // first element in bf16, or null; if not null, data may be null
};

}  // namespace detail

/// An operand of a product: a matrix, optionally transposed or a column slice of a wider one. T is const if it is
/// read-only.
template <class T, index_t Rows, index_t Columns, class Backend>
struct matrix_operand : detail::plain_operand<std::remove_const_t<T>> {};

namespace detail {

template <class T, index_t... Sizes, class B> auto as_matrix(view<T, extents<Sizes...>, B> const& x) {
    constexpr std::size_t rank = sizeof...(Sizes);
    static_assert(rank >= 2, "calm::matmul: an operand needs at least 2 dimensions (leading dimensions are merged)");
    using shape = extents<Sizes...>;
    index_t const columns = x.extent(rank - 1);
    index_t rows = x.extent(0);
    for (std::size_t r = 1; r + 1 < rank; ++r) rows *= x.extent(r);
    constexpr index_t static_rows = rank == 2 ? shape::static_extent(0) : dyn;
    return matrix_operand<T, static_rows, shape::static_extent(rank - 1), B>{{x.data(), rows, columns, columns, false}};
}
template <class T, class E, class B> auto as_matrix(tensor<T, E, B>& x) {
    return as_matrix(x.view());
}
template <class T, class E, class B> auto as_matrix(tensor<T, E, B> const& x) {
    return as_matrix(x.view());
}
template <class T, index_t Columns, class B> auto as_matrix(device_activations<T, Columns, B> const& x) {
    return matrix_operand<T, dyn, Columns, B>{
        {x.full().data(), x.extent(0), x.extent(1), x.extent(1), false, x.rounded().data()}};
}
template <class T, index_t R, index_t C, class B>
matrix_operand<T, R, C, B> const& as_matrix(matrix_operand<T, R, C, B> const& x) {
    return x;
}

template <class T, index_t R, index_t C, class B> auto transposed(matrix_operand<T, R, C, B> const& x) {
    return matrix_operand<T, C, R, B>{{x.data, x.columns, x.rows, x.stride, !x.is_transposed, x.rounded}};
}

}  // namespace detail

/// x^T as an operand, without a copy.
template <class X> auto transposed(X&& x) {
    return detail::transposed(detail::as_matrix(x));
}

/// Columns [First, First + Count) of x as an operand, without a copy. Throws errc::usage if x is too narrow.
template <index_t First, index_t Count, class X> auto columns(X&& x) {
    return []<class T, index_t R, index_t C, class B>(matrix_operand<T, R, C, B> const& a) {
        static_assert(C == dyn || First + Count <= C, "calm::columns: the columns asked for must exist");
        require(First >= 0 && First + Count <= a.columns, errc::usage, "calm::columns: expected columns within [0, ",
                a.columns, "), found [", First, ", ", First + Count, ")");
        index_t const first = a.is_transposed ? First * a.stride : First;
        return matrix_operand<T, R, Count, B>{{a.data == nullptr ? nullptr : a.data + first, a.rows, Count, a.stride,
                                               a.is_transposed, a.rounded == nullptr ? nullptr : a.rounded + first}};
    }(detail::as_matrix(x));
}

/// Whether a product overwrites its destination or adds to it.
enum class into { overwrite, accumulate };

namespace detail {

// Whether two operands may share elements: their memory overlaps, and they are not disjoint columns of one matrix.
template <class T, class U> bool overlap(plain_operand<T> const& x, plain_operand<U> const& y) {
    auto const stored_columns = [](auto const& m) { return m.is_transposed ? m.rows : m.columns; };
    auto const size_of = [](auto const& m) {
        return static_cast<index_t>(m.data != nullptr ? sizeof(*m.data) : sizeof(*m.rounded));
    };
    auto const first_of = [](auto const& m) {
        return m.data != nullptr ? reinterpret_cast<std::intptr_t>(m.data) : reinterpret_cast<std::intptr_t>(m.rounded);
    };
    auto const bytes = [&](auto const& m) {
        index_t const rows = m.is_transposed ? m.columns : m.rows;
        bool const empty = rows == 0 || stored_columns(m) == 0;
        return empty ? 0 : size_of(m) * ((rows - 1) * m.stride + stored_columns(m));
    };
    auto const first = first_of(x);
    auto const second = first_of(y);
    if (bytes(x) == 0 || bytes(y) == 0 || first + bytes(x) <= second || second + bytes(y) <= first) return false;
    if (size_of(x) != size_of(y) || x.stride != y.stride) return true;
    index_t const apart = ((second - first) / size_of(x) % x.stride + x.stride) % x.stride;  // columns from x to y
    return apart < stored_columns(x) || apart + stored_columns(y) > x.stride;
}

// The product C = or += A B of operands whose static sizes fit. C must be writable, although plain_operand has const
// data.
template <class T, class W>
product<T, W> product_of(plain_operand<T> const& c, plain_operand<T> const& a, plain_operand<W> const& b, into mode) {
    static_assert(std::is_same_v<T, W> || (std::is_same_v<W, bf16> && std::is_same_v<T, float>),
                  "calm::matmul: expected factors of one type, or float and a second one of bf16; convert one of them");
    require(!c.is_transposed, errc::usage,
            "calm::matmul: the destination must not be transposed; transpose and exchange the factors");
    require(a.columns == b.rows && c.rows == a.rows && c.columns == b.columns, errc::usage,
            "calm::matmul: expected shapes (M, N) = (M, K) (K, N), found ", extents<dyn, dyn>(c.rows, c.columns), " = ",
            extents<dyn, dyn>(a.rows, a.columns), " ", extents<dyn, dyn>(b.rows, b.columns));
    require(!overlap(c, a) && !overlap(c, b), errc::usage,
            "calm::matmul: the destination overlaps a factor; write into another tensor and copy");
    return {c.rows,   c.columns, a.columns,       const_cast<T*>(c.data),
            c.stride, a.data,    a.stride,        a.is_transposed,
            b.data,   b.stride,  b.is_transposed, mode == into::accumulate,
            nullptr,  a.rounded, b.rounded,       const_cast<bf16*>(c.rounded)};
}

// Checks the static sizes, then makes the product.
template <class TC, index_t M, index_t N, class TA, index_t M2, index_t K, class TB, index_t K2, index_t N2, class B>
auto product_of(matrix_operand<TC, M, N, B> const& c, matrix_operand<TA, M2, K, B> const& a,
                matrix_operand<TB, K2, N2, B> const& b, into mode) {
    static_assert(!std::is_const_v<TC>, "calm::matmul: the destination must be writable");
    if constexpr (K != dyn && K2 != dyn) static_assert(K == K2, "calm::matmul: columns of lhs must equal rows of rhs");
    if constexpr (M != dyn && M2 != dyn)
        static_assert(M == M2, "calm::matmul: rows of the result must equal rows of lhs");
    if constexpr (N != dyn && N2 != dyn)
        static_assert(N == N2, "calm::matmul: columns of the result must equal columns of rhs");
    using plain_c = plain_operand<std::remove_const_t<TC>>;
    using plain_a = plain_operand<std::remove_const_t<TA>>;
    using plain_b = plain_operand<std::remove_const_t<TB>>;
    return product_of(static_cast<plain_c const&>(c), static_cast<plain_a const&>(a), static_cast<plain_b const&>(b),
                      mode);
}

}  // namespace detail

/// What a product does besides multiplying.
template <class T, class Backend> struct product_options {
    into mode = into::overwrite;  ///< accumulate: neither a bias nor a residual
    /// (N), added to every row; for several matrices, their biases one after another.
    std::optional<vector_view<T const, dyn, Backend>> bias = {};
    /// (M, N), added to the result of a single product and only read.
    std::optional<matrix_view<T const, dyn, Backend>> residual = {};
};

/// Lazy RMSNorm: rows x (R, N) that products read normalised, as rms_norm would with a gain (N).
template <class T, index_t N, class Backend> struct rms_norm_prologue {
    matrix_view<T const, N, Backend> x;     ///< (R, N)
    vector_view<T const, N, Backend> gain;  ///< (N)
    double eps;                             ///< added to the mean square

    [[nodiscard]] index_t extent(std::size_t r) const { return x.extent(r); }  ///< size r of the shape
};

namespace detail {

// Matrices side by side, and what an epilogue writes in addition.
template <product_epilogue Epilogue, class Output, class... Matrices> struct product_results {
    tuple<Matrices...> matrices;
    Output output;
};
struct no_output {};

template <class> inline constexpr bool is_results = false;
template <product_epilogue Epilogue, class Output, class... M>
inline constexpr bool is_results<product_results<Epilogue, Output, M...>> = true;

template <class> inline constexpr bool is_prologue = false;
template <class T, index_t N, class Backend> inline constexpr bool is_prologue<rms_norm_prologue<T, N, Backend>> = true;

template <class... M> auto operands_of(M&&... m) {
    return product_results<product_epilogue::nothing, no_output, std::remove_cvref_t<decltype(as_matrix(m))>...>{
        {{as_matrix(m)}...}, {}};
}
template <class X> decltype(auto) results_of(X&& x) {
    if constexpr (is_results<std::remove_cvref_t<X>>)
        return (x);
    else
        return operands_of(x);
}

// The scalar type of a destination.
template <class C> struct scalar_of_result {
    using type = std::remove_cvref_t<decltype(*as_matrix(std::declval<C&>()).data)>;
};
template <product_epilogue Epilogue, class Output, class First, class... More>
struct scalar_of_result<product_results<Epilogue, Output, First, More...>> : scalar_of_result<First> {};

// Non-deduced, so that a call may write {.bias = b}.
template <class C, class Backend>
using options_of = product_options<typename scalar_of_result<std::remove_cvref_t<C>>::type, Backend>;

// The rows of a first factor before normalisation, and the norm that a product of few rows applies to them.
template <class A> decltype(auto) rows_of_factor(A const& a) {
    return as_matrix(a);
}
template <class T, index_t N, class Backend> auto rows_of_factor(rms_norm_prologue<T, N, Backend> const& a) {
    return as_matrix(a.x);
}
template <class A> no_norm norm_of_factor(A const&) {
    return {};
}
template <class T, index_t N, class Backend>
rms_norm_of_rows<T> norm_of_factor(rms_norm_prologue<T, N, Backend> const& a) {
    return {a.gain.data(), static_cast<T>(a.eps)};
}

// Calls f with the factor; rms_norm_prologue is normalised before, in ctx.workspace.
template <class Backend, class A, class F> void with_factor(context<Backend>&, A const& a, F const& f) {
    f(as_matrix(a));
}
template <class Backend, class T, index_t N, class F>
void with_factor(context<Backend>& ctx, rms_norm_prologue<T, N, Backend> const& a, F const& f) {
    arena_scope const scope(ctx.workspace);
    auto const y = take_activations<T, N>(ctx, ctx.workspace, a.extent(0));
    auto const r = ctx.workspace.template take<T>(extents<dyn>(a.extent(0)));
    with_numbers([&](auto const& normed) { rms_norm(ctx, normed, r, a.x, a.gain, a.eps); }, y);
    f(as_matrix(y));
}

// Gives the bias and the residual to products side by side.
template <class T, class W, std::size_t N, class Backend>
void set_addends(std::array<product<T, W>, N>& products, product_options<T, Backend> const& with) {
    require(with.mode == into::overwrite || !(with.bias || with.residual), errc::usage,
            "calm::matmul: expected into::overwrite with a bias or a residual, found into::accumulate");
    if (with.bias) {
        index_t columns = 0;
        for (auto& p : products) {
            p.bias = with.bias->data() + columns;
            columns += p.n;
        }
        require(with.bias->size() == columns, errc::usage, "calm::matmul: expected a bias of ", columns, ", found ",
                with.bias->size());
    }
    if (with.residual) {
        auto& p = products[0];
        require(N == 1 && p.ldc == p.n && p.c_rounded == nullptr, errc::usage,
                "calm::matmul: a residual needs one contiguous destination in full precision; add it separately");
        require_shape("calm::matmul", "the residual", with.residual->extents(), {p.m, p.n});
        require(!overlap(plain_operand<T>{p.c, p.m, p.n, p.ldc, false},
                         static_cast<plain_operand<T> const&>(as_matrix(*with.residual))),
                errc::usage, "calm::matmul: the destination overlaps the residual; use into::accumulate");
        p.addend = with.residual->data();
    }
}

// Where an epilogue of the products writes. Throws errc::usage if its shape differs or it overlaps a product.
template <class T, class W, std::size_t N> T* epilogue_output(no_output const&, std::array<product<T, W>, N> const&) {
    return nullptr;
}
template <class Y, class T, class W, std::size_t N>
T* epilogue_output(Y const& y, std::array<product<T, W>, N> const& products) {
    auto const to = as_matrix(y);
    for (auto const& p : products) {
        require_shape("calm::matmul", "the epilogue's result", {to.rows, to.columns}, {p.m, p.n});
        require(!overlap(plain_operand<T>(to), plain_operand<T>{p.c, p.m, p.n, p.ldc, false}), errc::usage,
                "calm::matmul: the epilogue's result overlaps the product, but both are kept; give separate memory");
    }
    return const_cast<T*>(to.data);
}

// Runs one product that has its addends.
template <class Backend, class T, class W>
void run_product(context<Backend>& ctx, product<T, W> const& p, product_options<T, Backend> const& with) {
    gemm(ctx, p);
    if constexpr (!block_backend<Backend>)
        if (p.addend != nullptr) {
            matrix_view<T, dyn, Backend> const c(p.c, extents<dyn, dyn>(p.m, p.n));
            evaluate(ctx, c, c + *with.residual);
        }
}

// One product of matrices as they are. Most are: this compiles faster than the general case.
template <class Backend, class T, class W>
void multiply_one(context<Backend>& ctx, product<T, W> const& p, product_options<T, Backend> const& with) {
    std::array products{p};
    set_addends(products, with);
    run_product(ctx, products[0], with);
}

template <class Backend, product_epilogue Epilogue, class Y, class... C, class A, class... B, class T>
void multiply(context<Backend>& ctx, product_results<Epilogue, Y, C...> const& to, A const& a,
              product_results<product_epilogue::nothing, no_output, B...> const& b,
              product_options<T, Backend> const& with) {
    static_assert(sizeof...(C) == sizeof...(B),
                  "calm::matmul: expected as many second factors side by side as destinations");
    auto const products_of = [&](auto const& x) {
        return [&]<std::size_t... I>(std::index_sequence<I...>) {
            std::array products{product_of(as_matrix(get<I>(to.matrices)), x, get<I>(b.matrices), with.mode)...};
            set_addends(products, with);
            return products;
        }
        (std::index_sequence_for<C...>{});
    };
    if constexpr (device_memory<Backend> && (sizeof...(C) > 1 || !std::is_same_v<Y, no_output> ||
                                             !std::is_same_v<decltype(norm_of_factor(a)), no_norm>)) {
        auto const products = products_of(rows_of_factor(a));
        T* const epilogue = epilogue_output(to.output, products);
        if (std::ranges::all_of(products, [](auto const& p) { return is_skinny_on_device(p); })) {
            launch_skinny_products<Epilogue>(ctx, products, epilogue, norm_of_factor(a));
            return;
        }
    }
    with_factor(ctx, a, [&](auto const& x) {
        for (auto const& p : products_of(x)) run_product(ctx, p, with);
    });
    auto const& first = get<0>(to.matrices);
    if constexpr (Epilogue == product_epilogue::silu)
        with_numbers([&](auto const& y, auto const& c) { evaluate(ctx, y, silu(c)); }, to.output, first);
    if constexpr (Epilogue == product_epilogue::gated) gated(ctx, to.output, first, get<1>(to.matrices));
}

}  // namespace detail

/// Several destinations, or several second factors, of one first factor.
template <class... X> auto side_by_side(X&&... x) {
    return detail::operands_of(x...);
}

/// Destination c of a product that also writes y = silu(c), of c's shape. Both are views or activations, stored as one
/// type.
template <class C, class Y> auto with_silu(C const& c, Y const& y) {
    return detail::product_results<detail::product_epilogue::silu, Y, C>{{{c}}, y};
}

/// Destinations of two products side by side that also write y = silu(gate) * up, as in SwiGLU. All are views or
/// activations, stored as one type.
template <class C, class Y> auto with_gate(C const& gate, C const& up, Y const& y) {
    return detail::product_results<detail::product_epilogue::gated, Y, C, C>{{{gate}, {up}}, y};
}

/// c (M, N) = a (M, K) b (K, N); with into::accumulate c += a b. `with` may instead add a bias (N) to every row, and a
/// residual (M, N). c must not overlap a or b.
/// Operands: tensors and views (leading dimensions are merged), transposed(x), columns<..>(x), activations; a may be
/// rms_norm_prologue. With c = side_by_side(...) and b = side_by_side(...), as many products of a as there are
/// matrices; with_silu and with_gate are destinations with an epilogue. Results are bit-identical to separate
/// operations, except that products of few rows normalise in another order on a device.
/// b may be bf16 while a and c are float. The result is then bit-identical to a product with b converted to float,
/// except on a device with more than 16 rows, where it is only equally accurate. Workspace in ctx.workspace is
/// released. Throws errc::usage, with the shapes, if operands or options do not fit.
template <class Backend, class C, class A, class B>
void matmul(context<Backend>& ctx, C&& c, A const& a, B const& b, detail::options_of<C, Backend> const& with = {}) {
    using detail::is_results;
    if constexpr (is_results<std::remove_cvref_t<C>> || is_results<B> || detail::is_prologue<A>)
        detail::multiply(ctx, detail::results_of(c), a, detail::results_of(b), with);
    else
        detail::multiply_one(
            ctx, detail::product_of(detail::as_matrix(c), detail::as_matrix(a), detail::as_matrix(b), with.mode), with);
}

/// x (R, N), a matrix or activations, as a factor of several products: if they run in bf16, x is rounded once for all
/// of them, in ctx.workspace.
template <class Backend, class X> auto precast_factor(context<Backend>& ctx, X const& x) {
    auto factor = detail::as_matrix(x);
    if constexpr (detail::may_be_rounded<std::remove_cvref_t<decltype(*factor.data)>, Backend>)
        if (factor.rounded == nullptr && factor.stride == factor.columns &&
            detail::rounds_rows(ctx, factor.rows, factor.columns))
            factor.rounded = detail::converted_rows<bf16, Backend>(ctx, factor.rows).of(factor.data, factor.columns);
    return factor;
}

}  // namespace calm
