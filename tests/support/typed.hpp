#pragma once
// Types and random data for typed test suites.

#include <boost/mpl/list.hpp>
#include <boost/mpl/push_front.hpp>
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <complex>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "calm/emulated.hpp"
#include "calm/tensor/core/context.hpp"
#include "calm/tensor/core/tensor.hpp"
#include "calm/tensor/detail/expr/operands.hpp"
#include "support/sanitized.hpp"

namespace calm::test {

// While it lives, the host may read and write the memory of the emulated device; enqueued work is completed first.
struct host_access {
    host_access() { detail::emulated_device::get().open(); }
    ~host_access() { detail::emulated_device::get().close(); }
    host_access(host_access const&) = delete;
    host_access& operator=(host_access const&) = delete;
};
// The elements of a view for the host, valid until the next work is enqueued on its device.
template <class T, class E, class Backend> view<T, E> opened(view<T, E, Backend> const& x) {
    detail::emulated_device::get().open();
    return {x.data(), x.extents()};
}

// A device tensor whose elements the host can access.
template <class T, class Shape, class Backend> struct open_tensor : calm::tensor<T, Shape, Backend> {
    using calm::tensor<T, Shape, Backend>::tensor;
    // y = expression, as on the host.
    template <class Expression>
    requires detail::is_expression<std::remove_cvref_t<Expression>> open_tensor& operator=(Expression&& expression) {
        evaluate(context<Backend>(0, 1), *this, std::forward<Expression>(expression));
        return *this;
    }
    T& operator[](index_t i) { return opened(this->view())[i]; }
    T const& operator[](index_t i) const { return opened(this->view())[i]; }
    T* begin() { return opened(this->view()).begin(); }
    T* end() { return begin() + this->size(); }
    T const* begin() const { return opened(this->view()).begin(); }
    T const* end() const { return begin() + this->size(); }
};

// A vector in device memory whose elements the host can access; data() closes it to the host.
template <class T, class Backend> class device_numbers {
public:
    using value_type = T;
    explicit device_numbers(std::size_t n = 0, T value = {}) : all_(extents<dyn>(static_cast<index_t>(n))) {
        std::fill(begin(), end(), value);
    }
    template <std::forward_iterator I>
    device_numbers(I first, I last) : all_(extents<dyn>(static_cast<index_t>(std::distance(first, last)))) {
        detail::emulated_device::get().open();
        std::copy(first, last, begin());
    }
    device_numbers(std::vector<T> const& v) : device_numbers(v.begin(), v.end()) {}
    device_numbers(std::initializer_list<T> v) : device_numbers(v.begin(), v.end()) {}
    device_numbers(device_numbers const& v) : device_numbers(v.begin(), v.end()) {}
    device_numbers(device_numbers&&) noexcept = default;
    device_numbers& operator=(device_numbers v) {
        all_ = std::move(v.all_);
        return *this;
    }
    ~device_numbers() = default;

    operator std::vector<T>() const { return {begin(), end()}; }
    void resize(std::size_t n) {
        device_numbers longer(n);
        std::copy_n(begin(), std::min(n, size()), longer.begin());
        *this = std::move(longer);
    }
    [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(all_.size()); }
    T& operator[](std::size_t i) { return all_[static_cast<index_t>(i)]; }
    T const& operator[](std::size_t i) const { return all_[static_cast<index_t>(i)]; }
    T* begin() { return all_.begin(); }
    T* end() { return all_.end(); }
    T const* begin() const { return all_.begin(); }
    T const* end() const { return all_.end(); }
    [[nodiscard]] T* data() {
        detail::emulated_device::get().close();
        return all_.data();
    }
    [[nodiscard]] T const* data() const {
        detail::emulated_device::get().close();
        return all_.data();
    }
    friend bool operator==(device_numbers const& a, device_numbers const& b) {
        return std::equal(a.begin(), a.end(), b.begin(), b.end());
    }

private:
    open_tensor<T, extents<dyn>, Backend> all_;
};

// A vector in memory that the kernels of a device can use.
template <class T, class Backend>
using numbers = std::conditional_t<host_memory<Backend>, std::vector<T>, device_numbers<T, Backend>>;
template <class Backend, class T> numbers<T, Backend> placed(std::vector<T> v) {
    return v;
}

// A device and the scalar it computes with. BOOST_AUTO_TEST_CASE_TEMPLATE(name, on, test_devices)
template <class Backend, class T> struct test_device {
    using backend = Backend;
    using scalar = T;
    template <class Shape>
    using tensor =
        std::conditional_t<host_memory<Backend>, calm::tensor<T, Shape, Backend>, open_tensor<T, Shape, Backend>>;
    using vector = tensor<extents<dyn>>;
    using context = calm::context<Backend>;
};
// Block kernels run on the emulated device, where they run as on `blocks` and are checked as well. The sanitizers see
// the same loads and stores in double.
using test_devices = std::conditional_t<
    is_sanitized, boost::mpl::list<test_device<cpu, float>, test_device<emulated, float>>,
    boost::mpl::list<test_device<cpu, float>, test_device<cpu, double>, test_device<emulated, float>>>;
// For kernels that split their work differently on the host than on a device.
using devices_and_blocks = boost::mpl::push_front<test_devices, test_device<blocks, float>>::type;
using scalars = boost::mpl::list<float, double>;

// Sizes around the boundaries of packets, thread blocks and tasks.
inline constexpr index_t sizes[] = {0, 1, 3, 17, 255, 16385};

// Element i of the seed's normals.
inline double drawn(std::uint64_t seed, index_t i) {
    return normal<double>({seed, stream::evaluation, 0}, static_cast<std::uint64_t>(i));
}

// x = centre + spread * normals; x is a tensor, a view or a vector.
template <class X> void draw(X&& x, std::uint64_t seed, double spread = 1, double centre = 0) {
    auto* const data = x.data();
    host_access const access;
    for (index_t i = 0; i < static_cast<index_t>(x.size()); ++i)
        data[i] = static_cast<std::remove_cvref_t<decltype(*data)>>(centre + spread * drawn(seed, i));
}
template <class T, class Backend = cpu>
numbers<T, Backend> draws(index_t n, std::uint64_t seed, double spread = 1, double centre = 0) {
    numbers<T, Backend> x(static_cast<std::size_t>(n));
    draw(x, seed, spread, centre);
    return x;
}

// A few rounding errors of T.
template <class T> constexpr double rounding = static_cast<double>(std::numeric_limits<T>::epsilon()) * 32;

// |got - want| <= bound * max(1, |want|); equal where neither is finite.
inline bool near(double got, double want, double bound) {
    if (std::isnan(want)) return std::isnan(got);
    if (std::isinf(want)) return got == want;
    return std::abs(got - want) <= bound * std::max(1.0, std::abs(want));
}

template <class T> std::vector<T> copied(T const* data, index_t n) {
    host_access const access;
    return {data, data + n};
}
template <class X> auto copied(X const& x) {
    using T = std::remove_cvref_t<decltype(*x.data())>;
    return copied<T>(x.data(), static_cast<index_t>(x.size()));
}

// Numbers as views in a device's memory, read-only (in_) or writable (out_), as rows or as a vector.
template <class Backend, index_t Columns, class V> auto in_rows(V const& v) {
    using T = typename V::value_type;
    static_assert(std::is_same_v<V, numbers<T, Backend>>,
                  "a device is given numbers in its memory: placed<Backend>(v)");
    return matrix_view<T const, Columns, Backend>(v.data(),
                                                  extents<dyn, Columns>(static_cast<index_t>(v.size()) / Columns));
}
template <class Backend, index_t Columns, class V> auto out_rows(V& v) {
    auto const x = in_rows<Backend, Columns>(std::as_const(v));
    return matrix_view<typename V::value_type, Columns, Backend>(v.data(), x.extents());
}
template <class Backend, class V> auto in_vector(V const& v) {
    using T = typename V::value_type;
    static_assert(std::is_same_v<V, numbers<T, Backend>>,
                  "a device is given numbers in its memory: placed<Backend>(v)");
    return vector_view<T const, dyn, Backend>(v.data(), extents<dyn>(static_cast<index_t>(v.size())));
}
template <class Backend, class V> auto out_vector(V& v) {
    return vector_view<typename V::value_type, dyn, Backend>(v.data(), in_vector<Backend>(std::as_const(v)).extents());
}

// A predicate for BOOST_CHECK_EXCEPTION: the error has this code, and its message contains every part.
template <class... Parts> auto says(errc code, Parts... parts) {
    return [=](error const& e) {
        std::string const text = e.what();
        BOOST_TEST_MESSAGE(text);
        return e.code() == code && ((text.find(parts) != std::string::npos) && ...);
    };
}

}  // namespace calm::test

namespace calm::detail {
template <class T, class E, class B> struct operand_kind<test::open_tensor<T, E, B>> : operand_kind<tensor<T, E, B>> {};
}  // namespace calm::detail
