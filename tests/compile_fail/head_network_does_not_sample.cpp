// expect: calm::calm_model: expected a head whose network has loss_and_gradient, sample and visit
#include "calm/model/calm.hpp"

#ifdef CALM_SHOULD_FAIL
template <auto C, class Space> struct derived_network : calm::energy::network<C, Space> {
    explicit derived_network(calm::index_t) {}
    void sample() const {}  // calm_model calls sample with arguments
};
#else
template <auto C, class Space> struct derived_network : calm::energy::network<C, Space> {
    explicit derived_network(calm::index_t) {}
};
#endif

struct chosen : calm::energy {
    template <calm::model_configuration auto C, class Space> using network = derived_network<C, Space>;
};

calm::calm_model<calm::configuration<chosen>{}> model;
