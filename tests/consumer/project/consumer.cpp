#include <calm/tensor/error.hpp>
#include <calm/text/token.hpp>

#include <Eigen/Core>
#include <nlohmann/json.hpp>
#include <simdjson.h>

int main() {
    try {
        calm::require(false, calm::errc::data, "expected to be caught");
    } catch (calm::error const& e) {
        return e.code() == calm::errc::data ? 0 : 1;
    }
    return 1;
}
