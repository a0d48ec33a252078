// expect: calm::view_of: a device cannot read the host's memory
#include "calm/tensor/view.hpp"

#ifdef CALM_SHOULD_FAIL
using backend = calm::cuda;
#else
using backend = calm::emulated;
#endif

calm::index_t count(std::span<int const> numbers) {
    return calm::view_of<backend>(numbers).size();
}
