#include "command/device.hpp"

#include <algorithm>
#include <charconv>

#include "calm/base/error.hpp"
#include "calm/base/quoted.hpp"
#include "command/suggest.hpp"
#include "run/ranks.hpp"

namespace calm::apps {

device_choice device_choice::parse(std::string_view text) {
    constexpr int most = 1023;
    auto const colon = std::min(text.find(':'), text.size());
    device_choice found{std::string(text.substr(0, colon))};
    int number = 0;
    if (std::find(device_names.begin(), device_names.end(), found.name) == device_names.end())
        throw error(errc::usage, "--device: expected cpu, cuda, cuda:N or auto, found " + in_quotes(text) +
                                     did_you_mean(found.name, device_names));
    if (colon == text.size()) return found;
    auto const* const last = text.data() + text.size();
    auto const [end, code] = std::from_chars(text.data() + colon + 1, last, number);
    if (found.name != "cuda" || code != std::errc{} || end != last || number < 0 || number > most)
        throw error(errc::usage, "--device: expected a GPU number from 0 to " + std::to_string(most) +
                                     " after cuda:, found " + in_quotes(text));
    found.number = number;
    return found;
}

std::string device_choice::text() const {
    return number ? name + ":" + std::to_string(*number) : name;
}

int device_choice::number_here() const {
    return number.value_or(number_on_this_machine());
}

std::string remark_on(unsupported_work const& found) {
    if (found.products > 0)
        return "cuBLASLt could not compute " + std::to_string(found.products) +
               " of the products: slower kernels of this library did";
    if (found.attentions > 0)
        return "cuDNN could not compute attention " + std::to_string(found.attentions) +
               " times: slower kernels of this library did";
    return "";
}

}  // namespace calm::apps
