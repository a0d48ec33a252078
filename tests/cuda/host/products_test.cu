// What cuBLASLt receives for products, and how its answers are handled, without a device: the real descriptors are read
// and computed on the host.
#include <limits>
#include <random>

#include "host/lt_on_host.hpp"
#include "on_device.hpp"

using namespace calm::test;
using calm::index_t;
using calm::detail::lt_products;

namespace {

template <class T> struct matrix {
    index_t rows, columns, stride;
    std::vector<T> values;
    index_t first;  // offset of the first element

    matrix(index_t r, index_t c, index_t more, index_t skipped, std::uint64_t seed) :
        rows(r), columns(c), stride(c + more), values(static_cast<std::size_t>(skipped + r * stride)), first(skipped) {
        std::vector<float> drawn(values.size());
        calm::normals(drawn.data(), static_cast<index_t>(drawn.size()), {seed, calm::stream::evaluation, 0});
        std::transform(drawn.begin(), drawn.end(), values.begin(), [](float x) { return static_cast<T>(x); });
    }
    [[nodiscard]] T at(index_t i, index_t j, bool is_transposed) const {
        return values[static_cast<std::size_t>(first + (is_transposed ? j * stride + i : i * stride + j))];
    }
    [[nodiscard]] T const* data() const { return values.data() + first; }
};

enum class start { zero, bias, what_was_there, other_rows };

// One product by its descriptors compared with sums in double; values between the rows of c must not change.
template <class T, class W = T>
void compare_product(lt_products<lt_on_host>& products, index_t m, index_t n, index_t k, bool a_transposed,
                     bool b_transposed, start from, index_t more, index_t skipped) {
    matrix<W> const a(a_transposed ? k : m, a_transposed ? m : k, more, skipped, 1);
    matrix<W> const b(b_transposed ? n : k, b_transposed ? k : n, 2 * more, skipped, 2);
    matrix<T> c(m, n, 3 * more, skipped, 3);
    matrix<T> const bias(1, n, 0, skipped, 4);
    auto const before = c;
    matrix<T> const addend(m, n, 3 * more, skipped, 5);  // with the stride of c
    if (from != start::what_was_there)                   // which must not be read
        for (index_t i = 0; i < m; ++i)
            std::fill_n(c.values.data() + c.first + i * c.stride, n,
                        static_cast<T>(std::numeric_limits<float>::quiet_NaN()));
    calm::detail::product<T, W, W> p{m,
                                     n,
                                     k,
                                     c.values.data() + c.first,
                                     c.stride,
                                     a.data(),
                                     a.stride,
                                     a_transposed,
                                     b.data(),
                                     b.stride,
                                     b_transposed,
                                     from == start::what_was_there,
                                     from == start::bias ? bias.data() : nullptr};
    if (from == start::other_rows) p.addend = addend.data();
    check(products.multiply(nullptr, p), "a product is computed");
    using factor = calm::computed_in<T>;
    double const of_result = std::is_same_v<T, factor> ? 0 : 0x1p-8;  // rounded once
    double const bound = 8 * static_cast<double>(k + 1) * std::numeric_limits<factor>::epsilon() + of_result;
    bool good = true;
    for (index_t i = 0; i < m; ++i)
        for (index_t j = 0; j < c.stride; ++j) {
            auto const at = static_cast<std::size_t>(c.first + i * c.stride + j);
            double expected = before.values[at];
            if (j < n) {
                if (from == start::zero) expected = 0;
                if (from == start::other_rows) expected = addend.values[at];
                if (from == start::bias) expected = bias.values[static_cast<std::size_t>(bias.first + j)];
                for (index_t l = 0; l < k; ++l)
                    expected +=
                        static_cast<double>(a.at(i, l, a_transposed)) * static_cast<double>(b.at(l, j, b_transposed));
            }
            double const off = std::abs(static_cast<double>(c.values[at]) - expected);
            good = good && (j < n ? off <= bound * std::fmax(1.0, std::abs(expected)) : off == 0);
        }
    check(good, calm::sentence(m, " x ", n, " x ", k, ", transposed ", int{a_transposed}, " ", int{b_transposed},
                               ", from ", static_cast<int>(from), ", rows ", more, " apart, from ", skipped)
                    .c_str());
}

template <class T, class W = T> void all_products() {
    lt_log log;
    lt_products<lt_on_host> products{lt_on_host(log)};
    int asked = 0;
    for (auto const& [m, n, k] : {std::array<index_t, 3>{1, 1, 1}, {7, 5, 3}, {3, 16, 33}, {20, 4, 8}})
        for (bool const a_transposed : {false, true})
            for (bool const b_transposed : {false, true})
                for (start const from : {start::zero, start::bias, start::what_was_there, start::other_rows})
                    for (index_t const more : {0, 3})
                        for (index_t const skipped : {0, 1}) {
                            compare_product<T, W>(products, m, n, k, a_transposed, b_transposed, from, more, skipped);
                            ++asked;
                        }
    check(log.products == asked && products.unsupported() == 0, "every product is the library's");
}

// A product of a fixed shape with arbitrary numbers.
struct some_product {
    alignas(256) float a[64] = {};
    alignas(256) float b[64] = {};
    alignas(256) float c[64] = {};
    alignas(256) float bias[8] = {1};
    calm::detail::product<float> p{4, 4, 4, c, 4, a, 4, false, b, 4, false, false};
};

void shapes_are_chosen_once() {
    lt_log log;
    lt_products<lt_on_host> products{lt_on_host(log)};
    some_product one;
    auto const ask = [&](calm::detail::product<float> const& p, int choices, char const* what) {
        check(products.multiply(nullptr, p), what);
        check(log.choices == choices, what);
    };
    ask(one.p, 1, "a new shape is chosen for");
    ask(one.p, 1, "a known one is not");
    auto p = one.p;
    p.accumulates = true;
    ask(p, 1, "nor where it accumulates");
    p = one.p;
    p.bias = one.bias;
    ask(p, 2, "a bias is another");
    p.bias = one.bias + 4;  // less aligned
    ask(p, 3, "an alignment is another");
    p = one.p;
    p.a = one.a + 1;
    ask(p, 4, "of any factor");
    p = one.p;
    p.ldc = 5;
    ask(p, 5, "so is a distance between rows");
    p = one.p;
    p.b_transposed = true;
    ask(p, 6, "so is a transposed factor");
    p = one.p;
    p.addend = one.c + 16;
    ask(p, 7, "so are rows that are added");
    calm::bf16 const rounded[16] = {};
    check(products.multiply(nullptr,
                            calm::detail::product<float, calm::bf16, calm::bf16>{4, 4, 4, one.c, 4, rounded, 4, false,
                                                                                 rounded, 4, false, false}) &&
              log.choices == 8,
          "so is a type of the factors");
    check(products.shapes() == 8, "they are all known");

    // A known shape with another bias pointer uses that pointer.
    some_product two;
    two.bias[0] = 7;
    p = two.p;
    p.bias = two.bias;
    ask(p, 8, "another bias is none");
    check(two.c[0] == 7, "another bias of a known shape is read");
}

void only_what_is_not_supported_is_left_to_others() {
    some_product one;
    {
        lt_log log;
        log.choice = CUBLAS_STATUS_NOT_SUPPORTED;
        lt_products<lt_on_host> products{lt_on_host(log)};
        check(!products.multiply(nullptr, one.p) && !products.multiply(nullptr, one.p), "not supported");
        check(products.unsupported() == 2 && log.choices == 1 && log.products == 0, "is counted, and asked once");
    }
    {
        lt_log log;
        log.ways = 0;
        lt_products<lt_on_host> products{lt_on_host(log)};
        check(!products.multiply(nullptr, one.p) && products.unsupported() == 1, "no way is not supported");
    }
    {
        lt_log log;
        log.product = CUBLAS_STATUS_NOT_SUPPORTED;
        lt_products<lt_on_host> products{lt_on_host(log)};
        check(!products.multiply(nullptr, one.p) && !products.multiply(nullptr, one.p), "nor is what is not computed");
        check(products.unsupported() == 2 && log.products == 1, "is counted, and tried once");
    }
    for (auto const status : {CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_NOT_INITIALIZED, CUBLAS_STATUS_ARCH_MISMATCH,
                              CUBLAS_STATUS_EXECUTION_FAILED, CUBLAS_STATUS_INTERNAL_ERROR})
        for (auto const where : {&lt_log::choice, &lt_log::state, &lt_log::product}) {
            lt_log log;
            log.*where = status;
            lt_products<lt_on_host> products{lt_on_host(log)};
            check_refused("a failure of the library", calm::errc::device, [&] { products.multiply(nullptr, one.p); });
            check(products.unsupported() == 0, "a failure is no lack of support");
        }
}

}  // namespace

int main() {
    try {
        all_products<float>();
        all_products<double>();
        all_products<float, calm::bf16>();
        all_products<calm::bf16, calm::bf16>();
        shapes_are_chosen_once();
        only_what_is_not_supported_is_left_to_others();
    } catch (std::exception const& e) {
        check(false, e.what());
    }
    return failures == 0 ? 0 : 1;
}
