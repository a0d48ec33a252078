#include "calm/tensor/ops/matmul.hpp"

#include "calm/eigen.hpp"
#include "support/typed.hpp"

using namespace calm;
using namespace calm::test;

namespace {

using matrix_shape = extents<dyn, dyn>;
template <class On> auto drawn_matrix(index_t rows, index_t columns, std::uint64_t seed) {
    typename On::template tensor<matrix_shape> x{matrix_shape(rows, columns)};
    draw(x, seed);
    return x;
}

// sum over k of a(i, k) b(k, j), in double
template <class A, class B> double entry(index_t inner, A const& a, B const& b) {
    double total = 0;
    for (index_t k = 0; k < inner; ++k) total += static_cast<double>(a(k)) * static_cast<double>(b(k));
    return total;
}

struct shape {
    index_t m, n, k;
};
struct shape_of_table {
    index_t n, k;
};
using devices_of_blocks =
    boost::mpl::list<test_device<blocks, float>, test_device<blocks, double>, test_device<emulated, float>>;
constexpr shape shapes[] = {{0, 3, 2}, {3, 0, 2},    {3, 2, 0},      {1, 1, 1},    {1, 17, 5},
                            {7, 5, 3}, {65, 33, 17}, {130, 259, 64}, {300, 40, 31}};

// What a product starts with.
enum class begins { with_nothing, with_what_is_there, with_a_bias };

// Products of some rows of A (most, k) with the rows of B (n, k). Both lie in wider matrices, with `beside` numbers
// before the first row and after each row.
template <class On, class W> struct skinny_product_case {
    using T = typename On::scalar;
    using backend = typename On::backend;
    static constexpr index_t most = 17, gap = 3;
    index_t n, k, beside;
    numbers<T, backend> a = draws<T, backend>(beside + most * (k + beside), 1);
    numbers<W, backend> b = draws<W, backend>(beside + n * (k + beside), 2);
    numbers<T, backend> bias = draws<T, backend>(n, 3);
    numbers<T, backend> before = draws<T, backend>(most * (n + gap), 4);

    // Rows first .. first + m of C, with the gaps between them.
    std::vector<T> found(typename On::context& ctx, index_t first, index_t m, begins start) const {
        auto const from = first * (n + gap);
        numbers<T, backend> c(before.begin() + from, before.begin() + from + m * (n + gap));
        detail::gemm(ctx, detail::product<T, W>{m, n, k, c.data(), n + gap, a.data() + beside + first * (k + beside),
                                                k + beside, false, b.data() + beside, k + beside, true,
                                                start == begins::with_what_is_there,
                                                start == begins::with_a_bias ? bias.data() : nullptr});
        return copied(c);
    }
    // Whether the error against a sum in double is explained by rounding k terms and the start value.
    [[nodiscard]] bool is_right(std::vector<T> const& c, index_t first, index_t m, begins start) const {
        auto const x = copied(a), biases = copied(bias), there = copied(before);
        auto const w = copied(b);
        auto const at = [](auto const& v, index_t i) { return static_cast<double>(v[static_cast<std::size_t>(i)]); };
        double const unit = std::numeric_limits<T>::epsilon() / 2;
        for (index_t i = 0; i < m; ++i)
            for (index_t j = 0; j < n + gap; ++j) {
                double const was = at(there, (first + i) * (n + gap) + j);
                double const got = at(c, i * (n + gap) + j);
                if (j >= n && got != was) return false;
                if (j >= n) continue;
                double want = start == begins::with_nothing ? 0 : start == begins::with_a_bias ? at(biases, j) : was;
                double size = std::abs(want);
                for (index_t l = 0; l < k; ++l) {
                    double const term =
                        at(x, beside + (first + i) * (k + beside) + l) * at(w, beside + j * (k + beside) + l);
                    want += term;
                    size += std::abs(term);
                }
                if (!(std::abs(got - want) <= static_cast<double>(k + 1) * unit * size)) return false;
            }
        return true;
    }
};

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(every_transposition_overwriting_and_accumulating, on, test_devices) {
    using T = typename on::scalar;
    typename on::context ctx(1, 2);
    for (shape const& size : shapes) {
        index_t const m = size.m, n = size.n, k = size.k;
        auto const a = drawn_matrix<on>(m, k, 1);
        auto const at = drawn_matrix<on>(k, m, 2);
        auto const b = drawn_matrix<on>(k, n, 3);
        auto const bt = drawn_matrix<on>(n, k, 4);
        auto c = drawn_matrix<on>(m, n, 5);
        auto const check = [&](char const* what, auto const& left, auto const& right, double start) {
            double worst = 0;
            for (index_t i = 0; i < m; ++i)
                for (index_t j = 0; j < n; ++j) {
                    double const want =
                        start + entry(
                                    k, [&](index_t l) { return left(i, l); }, [&](index_t l) { return right(l, j); });
                    worst = std::max(worst, std::abs(static_cast<double>(c[i * n + j]) - want));
                }
            BOOST_TEST(worst <= rounding<T> * 4, what << " " << m << " " << n << " " << k << ": " << worst);
        };
        auto const plain_a = [&](index_t i, index_t l) { return a[i * k + l]; };
        auto const turned_a = [&](index_t i, index_t l) { return at[l * m + i]; };
        auto const plain_b = [&](index_t l, index_t j) { return b[l * n + j]; };
        auto const turned_b = [&](index_t l, index_t j) { return bt[j * k + l]; };
        matmul(ctx, c, a, b);
        check("a b", plain_a, plain_b, 0);
        matmul(ctx, c, transposed(at), b);
        check("a^T b", turned_a, plain_b, 0);
        matmul(ctx, c, a, transposed(bt));
        check("a b^T", plain_a, turned_b, 0);
        matmul(ctx, c, transposed(at), transposed(bt));
        check("a^T b^T", turned_a, turned_b, 0);
        matmul(ctx, c, transposed(transposed(a)), b);
        check("a^T^T b", plain_a, plain_b, 0);
        std::fill(c.begin(), c.end(), T{2});
        matmul(ctx, c, a, b, {.mode = into::accumulate});
        check("2 + a b", plain_a, plain_b, 2);
        typename on::vector bias{extents<dyn>(n)};
        std::fill(bias.begin(), bias.end(), T{3});
        matmul(ctx, c, a, transposed(bt), {.bias = bias.view()});
        check("3 + a b^T", plain_a, turned_b, 3);
    }
}

// A row has the same bits alone and among others, with any number of threads.
BOOST_AUTO_TEST_CASE_TEMPLATE(few_rows_do_not_depend_on_each_other, T, scalars) {
    using on = test_device<cpu, T>;
    index_t const n = 331;
    constexpr index_t most = detail::native_bytes == 32 ? 4 : 16;
    for (index_t const k : {64, 83, 300}) {
        auto const a = drawn_matrix<on>(most, k, 1);
        auto const w = drawn_matrix<on>(n, k, 2);
        typename on::vector bias{extents<dyn>(n)};
        draw(bias, 3);
        bool good = true;
        for (index_t m = 1; m <= most; ++m)
            for (int const threads : {1, 2}) {
                context<> ctx(1, threads), alone(1, 1);
                auto c = drawn_matrix<on>(m, n, 4);
                auto d = drawn_matrix<on>(m, n, 4);
                matmul(ctx, c, rows(a.view(), 0, m), transposed(w),
                       {.mode = m % 2 == 0 ? into::accumulate : into::overwrite});
                for (index_t i = 0; i < m; ++i)
                    matmul(alone, rows(d.view(), i, 1), rows(a.view(), i, 1), transposed(w),
                           {.mode = m % 2 == 0 ? into::accumulate : into::overwrite});
                good = good && std::equal(c.begin(), c.end(), d.begin());
                matmul(ctx, c, rows(a.view(), 0, m), transposed(w), {.bias = bias.view()});
                for (index_t i = 0; i < m; ++i)
                    matmul(alone, rows(d.view(), i, 1), rows(a.view(), i, 1), transposed(w), {.bias = bias.view()});
                good = good && std::equal(c.begin(), c.end(), d.begin());
            }
        BOOST_TEST(good, k);
    }
}

// The row independence also holds on a device for up to sixteen rows, for any neighbours, alignment and thread order.
// One more row selects another algorithm with other bits.
BOOST_AUTO_TEST_CASE_TEMPLATE(few_rows_of_a_device_do_not_depend_on_each_other, on, devices_of_blocks) {
    using T = typename on::scalar;
    typename on::context ctx(1, 2), other(1, 1);
    other.order = thread_order::permuted;
    for (auto const start : {begins::with_nothing, begins::with_what_is_there, begins::with_a_bias})
        for (auto const [n, k] : {shape_of_table{1, 0}, {1, 1}, {3, 127}, {8, 128}, {9, 130}, {5, 516}, {37, 1300}})
            for (index_t const beside : {0, 1, 4}) {
                skinny_product_case<on, T> const p{n, k, beside};
                auto const one_by_one = [&](index_t m) {
                    std::vector<T> all;
                    for (index_t i = 0; i < m; ++i) {
                        auto const row = p.found(ctx, i, 1, start);
                        all.insert(all.end(), row.begin(), row.end());
                    }
                    return all;
                };
                auto const alone = one_by_one(16);
                for (index_t const m : {1, 2, 3, 4, 5, 8, 9, 16}) {
                    auto const c = p.found(m % 2 == 0 ? ctx : other, 0, m, start);
                    BOOST_TEST(std::equal(c.begin(), c.end(), alone.begin()), m << " " << n << " " << k);
                }
                BOOST_TEST(p.is_right(alone, 0, 16, start), n << " " << k << " " << beside);
                auto const many = p.found(ctx, 0, 17, start);
                BOOST_TEST(p.is_right(many, 0, 17, start), n << " " << k << " " << beside);
                if (k > 500) BOOST_TEST(!std::equal(alone.begin(), alone.end(), many.begin()));
            }
}

// Sizes that the cpu splits into several parts in each dimension, or into several slabs of depth; the last parts have
// few columns, few rows and a depth of one.
constexpr shape large[] = {{13, 1025 + 32, 513}, {1033, 33, 257}, {25, 65, 2100}, {1033, 257, 257}};
// Compared with Eigen.
BOOST_AUTO_TEST_CASE_TEMPLATE(products_of_several_parts, T, scalars) {
    using on = test_device<cpu, T>;
    context<> ctx(1, 2);
    for (auto const [m, n, k] : large)
        for (bool const a_transposed : {false, true})
            for (bool const b_transposed : {false, true})
                for (auto const start : {begins::with_nothing, begins::with_what_is_there, begins::with_a_bias}) {
                    auto const a = a_transposed ? drawn_matrix<on>(k, m, 1) : drawn_matrix<on>(m, k, 1);
                    auto const b = b_transposed ? drawn_matrix<on>(n, k, 2) : drawn_matrix<on>(k, n, 2);
                    auto c = drawn_matrix<on>(m, n, 3);
                    auto want = drawn_matrix<on>(m, n, 3);
                    typename on::vector bias{extents<dyn>(n)};
                    draw(bias, 4);
                    detail::product<T> const p{m,
                                               n,
                                               k,
                                               c.data(),
                                               n,
                                               a.data(),
                                               a.extent(1),
                                               a_transposed,
                                               b.data(),
                                               b.extent(1),
                                               b_transposed,
                                               start == begins::with_what_is_there,
                                               start == begins::with_a_bias ? bias.data() : nullptr};
                    detail::gemm(ctx, p);
                    auto other = p;
                    other.c = want.data();
                    detail::eigen_product(other);
                    double worst = 0;
                    for (index_t i = 0; i < m * n; ++i)
                        worst = std::max(worst, std::abs(static_cast<double>(c[i] - want[i])));
                    BOOST_TEST(worst <= rounding<T> * std::sqrt(static_cast<double>(k)),
                               m << " " << n << " " << k << " " << a_transposed << b_transposed
                                 << static_cast<int>(start) << ": " << worst);
                    // One thread and stack memory give the same bits.
                    other = p;
                    auto again = drawn_matrix<on>(m, n, 3);
                    other.c = again.data();
                    detail::serial_gemm(other);
                    BOOST_CHECK(std::equal(c.begin(), c.end(), again.begin()));
                }
}

// A weight gradient with more slabs of depth than are buffered before they are added: bit-identical to one thread,
// whose sums are compared with Eigen above.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_small_product_of_great_depth_adds_up_in_order, T, scalars) {
    using on = test_device<cpu, T>;
    index_t const m = 130, n = 259, k = 7 * 256 + 257;
    auto const a = drawn_matrix<on>(k, m, 1);
    auto const b = drawn_matrix<on>(k, n, 2);
    for (bool const accumulates : {false, true}) {
        auto want = drawn_matrix<on>(m, n, 3);
        detail::product<T> p{m, n, k, want.data(), n, a.data(), m, true, b.data(), n, false, accumulates};
        detail::serial_gemm(p);
        for (int const threads : {1, 2, 3}) {
            context<> ctx(1, threads);
            auto c = drawn_matrix<on>(m, n, 3);
            p.c = c.data();
            detail::gemm(ctx, p);
            BOOST_CHECK(std::equal(c.begin(), c.end(), want.begin()));
        }
    }
}

// Each row is independent of the other rows and of its position in its tile.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_row_has_the_same_bits_among_any_others, T, scalars) {
    using on = test_device<cpu, T>;
    context<> ctx(1, 2);
    index_t const m = 120, n = 70, k = 300;
    auto const a = drawn_matrix<on>(m, k, 1);
    auto const b = drawn_matrix<on>(k, n, 2);
    auto c = drawn_matrix<on>(m, n, 3);
    matmul(ctx, c, a, b);
    for (index_t const begin : {0, 1, 7, 50})
        for (index_t const count : {1, 2, 5, 9, 12, 13, 60}) {
            auto part = drawn_matrix<on>(count, n, 4);
            matmul(ctx, part, rows(a.view(), begin, count), b);
            BOOST_CHECK(std::equal(part.begin(), part.end(), c.begin() + begin * n));
        }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(independent_rows_have_the_same_bits_for_any_number_of_rows, T, scalars) {
    using on = test_device<cpu, T>;
    constexpr index_t most = 150;
    for (auto const& table : {shape_of_table{37, 24}, shape_of_table{130, 130}, shape_of_table{20, 513}}) {
        index_t const n = table.n, k = table.k;
        auto const a = drawn_matrix<on>(most, k, 1), b = drawn_matrix<on>(n, k, 2);
        auto const product_of = [&](index_t rows, bool independent) {
            typename on::context ctx(0, 2);
            ctx.independent_rows = independent;
            typename on::template tensor<matrix_shape> c{matrix_shape(rows, n)};
            detail::gemm(ctx,
                         detail::product<T>{rows, n, k, c.data(), n, a.data(), k, false, b.data(), k, true, false});
            return c;
        };
        auto const single = product_of(1, false), all = product_of(most, true), usual = product_of(most, false);
        BOOST_TEST(std::equal(single.begin(), single.end(), all.begin()));
        BOOST_TEST(!std::equal(usual.begin(), usual.end(), all.begin()));  // or this test shows nothing
        for (index_t const rows : {2, 3, 5, 16, 33, 64, 65}) {
            auto const some = product_of(rows, true);
            BOOST_TEST(std::equal(some.begin(), some.end(), all.begin()), rows << " rows");
        }
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_bias_is_added_to_every_row, on, test_devices) {
    typename on::context ctx(1, 2);
    auto const a = drawn_matrix<on>(70, 0, 1);
    auto const b = drawn_matrix<on>(0, 90, 1);
    auto c = drawn_matrix<on>(70, 90, 2);
    typename on::template tensor<extents<90>> bias;
    draw(bias, 3);
    typename on::template tensor<extents<90>> const& read = bias;
    matmul(ctx, c, a, b, {.bias = read.view()});
    bool good = true;
    for (index_t i = 0; i < 70; ++i)
        for (index_t j = 0; j < 90; ++j) good = good && c[i * 90 + j] == bias[j];
    BOOST_TEST(good);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(columns_of_a_wider_matrix, on, test_devices) {
    using T = typename on::scalar;
    typename on::context ctx(1, 1);
    auto const wide = drawn_matrix<on>(5, 9, 1);
    auto const b = drawn_matrix<on>(3, 4, 2);
    auto c = drawn_matrix<on>(5, 10, 3);
    auto const before = copied(c);
    matmul(ctx, columns<6, 4>(c), columns<2, 3>(wide), b);
    for (index_t i = 0; i < 5; ++i)
        for (index_t j = 0; j < 10; ++j) {
            double const want = j < 6 ? before[static_cast<std::size_t>(i * 10 + j)]
                                      : entry(
                                            3, [&](index_t l) { return wide[i * 9 + 2 + l]; },
                                            [&](index_t l) { return b[l * 4 + j - 6]; });
            BOOST_TEST(near(c[i * 10 + j], want, rounding<T>));
        }
    // Columns of a transposed matrix are rows of the stored one.
    auto d = drawn_matrix<on>(9, 4, 4);
    auto const f = drawn_matrix<on>(2, 4, 5);
    matmul(ctx, d, columns<3, 2>(transposed(wide)), f);
    for (index_t i = 0; i < 9; ++i)
        for (index_t j = 0; j < 4; ++j)
            BOOST_TEST(
                near(d[i * 4 + j],
                     entry(
                         2, [&](index_t l) { return wide[(3 + l) * 9 + i]; }, [&](index_t l) { return f[l * 4 + j]; }),
                     rounding<T>));
    BOOST_CHECK_EXCEPTION((columns<7, 3>(wide)), error,
                          says(errc::usage, "calm::columns: expected columns within [0, 9), found [7, 10)"));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(leading_dimensions_are_taken_together, on, test_devices) {
    using T = typename on::scalar;
    typename on::context ctx(1, 1);
    typename on::template tensor<extents<dyn, dyn, 3>> x{extents<dyn, dyn, 3>(2, 5)};
    typename on::template tensor<extents<dyn, 2>> y{extents<dyn, 2>(10)};
    typename on::template tensor<extents<3, 2>> w;
    draw(x, 1);
    draw(w, 2);
    matmul(ctx, y, x, w);
    for (index_t r = 0; r < 10; ++r)
        BOOST_TEST(near(y[r * 2 + 1],
                        entry(
                            3, [&](index_t l) { return x[r * 3 + l]; }, [&](index_t l) { return w[l * 2 + 1]; }),
                        rounding<T>));
}

BOOST_AUTO_TEST_CASE(products_of_complex_numbers) {
    context<> ctx(1, 2);
    using complex = std::complex<double>;
    auto a = drawn_matrix<test_device<cpu, complex>>(3, 2, 1);
    auto const b = drawn_matrix<test_device<cpu, complex>>(3, 4, 2);
    auto c = drawn_matrix<test_device<cpu, complex>>(2, 4, 3);
    for (auto& v : a) v += complex(0, 2);
    matmul(ctx, c, transposed(a), b);  // transposed, not conjugated
    for (index_t i = 0; i < 2; ++i)
        for (index_t j = 0; j < 4; ++j) {
            complex want{};
            for (index_t l = 0; l < 3; ++l) want += a[l * 2 + i] * b[l * 4 + j];
            BOOST_TEST(std::norm(c[i * 4 + j] - want) < 1e-28);
        }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_threads_change_no_bit, on, test_devices) {
    using T = typename on::scalar;
    for (auto const [m, n, k] : {shape{513, 70, 33}, shape{40, 1031, 65}, shape{130, 140, 150}}) {
        auto const a = drawn_matrix<on>(m, k, 1);
        auto const b = drawn_matrix<on>(n, k, 2);
        std::vector<std::vector<T>> all;
        for (auto const order : {thread_order::ascending, thread_order::descending, thread_order::permuted}) {
            typename on::context ctx(1, 1 + static_cast<int>(order));
            ctx.order = order;
            auto c = drawn_matrix<on>(m, n, 3);
            matmul(ctx, c, a, transposed(b));
            matmul(ctx, c, a, transposed(b), {.mode = into::accumulate});
            all.push_back(copied(c));
        }
        BOOST_CHECK((all[0] == all[1] && all[0] == all[2]));
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(shapes_that_do_not_fit_are_refused_with_all_three, on, test_devices) {
    typename on::context ctx(1, 1);
    auto const a = drawn_matrix<on>(2, 3, 1);
    auto const b = drawn_matrix<on>(4, 5, 2);
    auto c = drawn_matrix<on>(2, 5, 3);
    auto const fits = drawn_matrix<on>(3, 5, 4);
    BOOST_CHECK_EXCEPTION(matmul(ctx, c, a, b), error, says(errc::usage, "calm::matmul", "(2, 5) = (2, 3) (4, 5)"));
    BOOST_CHECK_EXCEPTION(matmul(ctx, c, transposed(a), b), error, says(errc::usage, "(3, 2) (4, 5)"));
    BOOST_CHECK_EXCEPTION(matmul(ctx, transposed(c), transposed(fits), transposed(a)), error,
                          says(errc::usage, "the destination", "transposed"));
    typename on::template tensor<extents<dyn>> bias{extents<dyn>(4)};
    BOOST_CHECK_EXCEPTION(matmul(ctx, c, a, fits, {.bias = bias.view()}), error,
                          says(errc::usage, "expected a bias of 5, found 4"));
    ctx.set_dry_run(true);
    BOOST_CHECK_THROW(matmul(ctx, c, a, b), error);  // a dry run checks too
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_destination_that_overlaps_a_factor_is_refused, on, test_devices) {
    typename on::context ctx(1, 1);
    auto a = drawn_matrix<on>(4, 4, 1);
    auto const b = drawn_matrix<on>(4, 4, 2);
    auto const refused = says(errc::usage, "calm::matmul: the destination overlaps a factor");
    BOOST_CHECK_EXCEPTION(matmul(ctx, a, a, b), error, refused);
    BOOST_CHECK_EXCEPTION(matmul(ctx, rows(a.view(), 1, 3), rows(b.view(), 0, 3), a), error, refused);
    matmul(ctx, rows(a.view(), 0, 2), rows(a.view(), 2, 2), b);
    matmul(ctx, columns<0, 2>(a), b, columns<2, 2>(a));  // adjacent columns share no element
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_dry_run_writes_nothing, on, test_devices) {
    typename on::context ctx(1, 2);
    auto const a = drawn_matrix<on>(40, 40, 1);
    auto c = drawn_matrix<on>(40, 40, 2);
    auto const before = copied(c);
    ctx.set_dry_run(true);
    matmul(ctx, c, a, a);
    BOOST_CHECK((copied(c) == before));
}
