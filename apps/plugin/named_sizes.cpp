#include "plugin/named_sizes.hpp"

#include <map>

#include "configs/sizes.hpp"

namespace calm::apps {

any_sizes const* sizes_named(std::string const& name) {
    static std::map<std::string, any_sizes> const all{{"calm-m", with_any_head(sizes::calm_m)},
                                                      {"small", with_any_head(sizes::small)},
                                                      {"text", with_any_head(sizes::text)},
                                                      {"text-drafted", with_any_head(sizes::text_drafted)},
                                                      {"tiny", with_any_head(sizes::tiny)},
                                                      {"tiny-ar", sizes::tiny_ar},
                                                      {"tiny-ar-patch", sizes::tiny_ar},
                                                      {"tiny-diffusion", with_any_head(sizes::tiny_diffusion)},
                                                      {"tiny-drafted", with_any_head(sizes::tiny_drafted)},
                                                      {"tiny-flow", with_any_head(sizes::tiny_flow)},
                                                      {"tiny-k1", with_any_head(sizes::tiny_k1)},
                                                      {"tiny-k2", with_any_head(sizes::tiny_k2)},
                                                      {"tiny-k2-drafted", with_any_head(sizes::tiny_k2_drafted)},
                                                      {"tiny-k8", with_any_head(sizes::tiny_k8)},
                                                      {"tiny-margin", with_any_head(sizes::tiny_margin)}};
    auto const found = all.find(name);
    return found == all.end() ? nullptr : &found->second;
}

}  // namespace calm::apps
