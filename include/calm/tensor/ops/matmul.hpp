#pragma once
// Products of matrices, destination first: matmul(ctx, y, x, transposed(w)).

#include "calm/base/bf16.hpp"
#include "calm/tensor/core/tensor.hpp"
#include "calm/tensor/detail/core/activations.hpp"
#include "calm/tensor/detail/kernels/block/rows.hpp"
#include "calm/tensor/detail/kernels/block/widened_product.hpp"
#include "calm/tensor/detail/kernels/cpu/matmul.hpp"

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

// An operand of a product: a matrix, optionally transposed or a column slice of a wider one. T is const if it is
// read-only.
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

// x^T as an operand, without a copy.
template <class X> auto transposed(X&& x) {
    return detail::transposed(detail::as_matrix(x));
}

// Columns [First, First + Count) of x as an operand, without a copy. Throws errc::usage if x is too narrow.
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

// Whether a product overwrites its destination or adds to it.
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
product<T, W> product_of(plain_operand<T> const& c, plain_operand<T> const& a, plain_operand<W> const& b, into mode,
                         T const* bias) {
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
            bias,     a.rounded, b.rounded,       const_cast<bf16*>(c.rounded)};
}

// Checks the static sizes, then makes the product.
template <class TC, index_t M, index_t N, class TA, index_t M2, index_t K, class TB, index_t K2, index_t N2, class B>
auto product_of(matrix_operand<TC, M, N, B> const& c, matrix_operand<TA, M2, K, B> const& a,
                matrix_operand<TB, K2, N2, B> const& b, into mode, std::remove_const_t<TC> const* bias) {
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
                      mode, bias);
}

inline void check_bias(index_t size, index_t columns) {
    require(size == columns, errc::usage, "calm::matmul: expected a bias of ", columns, ", found ", size);
}

}  // namespace detail

// c (M, N) = or += a (M, K) b (K, N). Operands: tensors and views (leading dimensions are merged), transposed(x),
// columns<..>(x), activations. b may be bf16 while a and c are float. The result is then bit-identical to a product
// with b converted to float, except on a device with more than 16 rows, where it is only equally accurate. Workspace in
// ctx.workspace is released. Throws errc::usage, with the shapes, if they do not fit.
template <class Backend, class C, class A, class B>
void matmul(context<Backend>& ctx, C&& c, A const& a, B const& b, into mode = into::overwrite) {
    gemm(ctx, detail::product_of(detail::as_matrix(c), detail::as_matrix(a), detail::as_matrix(b), mode, nullptr));
}

// c (M, N) = a (M, K) b (K, N) + bias (N) on every row. Throws as above, and for a bias of the wrong size.
template <class Backend, class C, class A, class B, class T, index_t N>
void matmul(context<Backend>& ctx, C&& c, A const& a, B const& b, view<T, extents<N>, Backend> const& bias) {
    auto const& out = detail::as_matrix(c);
    detail::check_bias(bias.size(), out.columns);
    gemm(ctx, detail::product_of(out, detail::as_matrix(a), detail::as_matrix(b), into::overwrite, bias.data()));
}

// x (R, N), a matrix or activations, as a factor of several products: if they run in bf16, x is rounded once for all of
// them, in ctx.workspace.
template <class Backend, class X> auto precast_factor(context<Backend>& ctx, X const& x) {
    auto factor = detail::as_matrix(x);
    if constexpr (detail::may_be_rounded<std::remove_cvref_t<decltype(*factor.data)>, Backend>)
        if (factor.rounded == nullptr && factor.stride == factor.columns &&
            detail::rounds_rows(ctx, factor.rows, factor.columns))
            factor.rounded = detail::converted_rows<bf16, Backend>(ctx, factor.rows).of(factor.data, factor.columns);
    return factor;
}

}  // namespace calm
