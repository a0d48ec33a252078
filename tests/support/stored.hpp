#pragma once
// Comparing the contents of model directories.

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "calm/io/tensor_table.hpp"

namespace calm::test {

// Checks for equal names, types, shapes and bytes, in any order.
inline void check_same(tensor_table const& x, tensor_table const& y) {
    BOOST_TEST(x.tensors().size() == y.tensors().size());
    for (auto const& tensor : x.tensors()) {
        auto const& other = y.at(tensor.name);
        BOOST_TEST((tensor.type == other.type), tensor.name);
        BOOST_TEST(tensor.shape == other.shape);
        BOOST_TEST(std::ranges::equal(tensor.bytes, other.bytes), tensor.name);
    }
}
inline nlohmann::json configuration_in(std::string const& directory) {
    return nlohmann::json::parse(std::ifstream(directory + "/config.json"));
}

}  // namespace calm::test
