// Device decisions that need no device: which GPU a process uses, and the message for a GPU without compiled code.
#include <string>

#include "on_device.hpp"

using namespace calm::test;

namespace {

void one_gpu_a_process() {
    check_refused("a GPU that is not there", calm::errc::device, [] { calm::context<calm::cuda> const ctx(0, 4096); });
    check(calm::detail::number_of_device() == 0, "number 0 where none was chosen");
    calm::detail::choose_device(3);  // the refused context chose no device
    check(calm::detail::number_of_device() == 3, "the number that was chosen");
    calm::detail::choose_device(3);
    check_refused("a second GPU", calm::errc::usage, [] { calm::detail::choose_device(0); });
}

void code_for_another_gpu() {
    std::string const said = calm::detail::no_code_for("NVIDIA T4", 7, 5);
    check(said.starts_with("no code for this GPU: NVIDIA T4 has compute capability 7.5, and this program was compiled "
                           "for ") &&
              said.ends_with("; compile it with -DCMAKE_CUDA_ARCHITECTURES=75"),
          said.c_str());
    check(said.find("90") == std::string::npos, said.c_str());  // written as 9.0, like the others
}

}  // namespace

int main() {
    one_gpu_a_process();
    code_for_another_gpu();
    return failures == 0 ? 0 : 1;
}
