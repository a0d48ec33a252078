#pragma once
// What typed suites run over, and numbers for them.

#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <complex>
#include <limits>
#include <string>
#include <vector>

#include "calm/tensor/context.hpp"
#include "calm/tensor/tensor.hpp"

namespace calm::test {

// An executor and the scalar it computes with. BOOST_AUTO_TEST_CASE_TEMPLATE(name, on, executors)
template <class Backend, class T> struct executor {
    using backend = Backend;
    using scalar = T;
    template <class Shape> using tensor = calm::tensor<T, Shape, Backend>;
    using vector = tensor<extents<dyn>>;
    using context = calm::context<Backend>;
};
using executors = boost::mpl::list<executor<cpu, float>, executor<cpu, double>, executor<blocks, float>>;
using scalars = boost::mpl::list<float, double>;

// Sizes around those of packets, blocks of threads and tasks.
inline constexpr index_t sizes[] = {0, 1, 3, 17, 255, 16385};

// Number i of the seed's normals.
inline double drawn(std::uint64_t seed, index_t i) {
    return normal<double>({seed, stream::evaluation, 0}, static_cast<std::uint64_t>(i));
}

// x = centre + spread * normals; x is a tensor, a view or a vector.
template <class X> void draw(X&& x, std::uint64_t seed, double spread = 1, double centre = 0) {
    index_t i = 0;
    for (auto& element : x)
        element = static_cast<std::remove_cvref_t<decltype(element)>>(centre + spread * drawn(seed, i++));
}
template <class T> std::vector<T> draws(index_t n, std::uint64_t seed, double spread = 1, double centre = 0) {
    std::vector<T> x(static_cast<std::size_t>(n));
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
    return {data, data + n};
}
template <class X> auto copied(X const& x) {
    using T = std::remove_cvref_t<decltype(*x.data())>;
    return copied<T>(x.data(), x.size());
}

// Rows of a vector as an executor sees them, to be read or to be written.
template <class Backend, index_t Columns, class T>
matrix_view<T const, Columns, Backend> in_rows(std::vector<T> const& v) {
    return {v.data(), extents<dyn, Columns>(static_cast<index_t>(v.size()) / Columns)};
}
template <class Backend, index_t Columns, class T> matrix_view<T, Columns, Backend> out_rows(std::vector<T>& v) {
    return {v.data(), extents<dyn, Columns>(static_cast<index_t>(v.size()) / Columns)};
}

// A predicate for BOOST_CHECK_EXCEPTION: the code, and every part in the sentence.
template <class... Parts> auto says(errc code, Parts... parts) {
    return [=](error const& e) {
        std::string const text = e.what();
        BOOST_TEST_MESSAGE(text);
        return e.code() == code && ((text.find(parts) != std::string::npos) && ...);
    };
}

}  // namespace calm::test
