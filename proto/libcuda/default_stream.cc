// SPDX-License-Identifier: Apache-2.0
// The exported functions of which there are two forms. Compiled into the shim and into the software driver.
#include "proto/libcuda/default_stream.h"

#include <string_view>
#include <tuple>

#include "proto/cuda/driver_api.h"

namespace gpuloom {
namespace {

// The types of a function's parameters, by number.
template <typename Function>
struct Parameters;
template <typename... Types>
struct Parameters<CUresult(Types...)> {
  using Tuple = std::tuple<Types...>;
};
template <typename Function, size_t i>
using Parameter = std::tuple_element_t<i, typename Parameters<Function>::Tuple>;

constexpr bool IsTwin(std::string_view name) {
  return name.ends_with("_ptsz") || name.ends_with("_ptds");
}
constexpr bool IsTwinOf(std::string_view name, std::string_view plain) {
  return IsTwin(name) && name.substr(0, name.size() - 5) == plain;
}

}  // namespace
}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

// A definition needs a list of parameters, which no type gives: hence their number in driver_api.def. With a wrong one
// the function is not the one that cuda.h declares, and the compiler says so.
#define PARAMETERS_1(F) Parameter<F, 0> a
#define PARAMETERS_2(F) PARAMETERS_1(F), Parameter<F, 1> b
#define PARAMETERS_3(F) PARAMETERS_2(F), Parameter<F, 2> c
#define PARAMETERS_4(F) PARAMETERS_3(F), Parameter<F, 3> d
#define PARAMETERS_5(F) PARAMETERS_4(F), Parameter<F, 4> e
#define PARAMETERS_6(F) PARAMETERS_5(F), Parameter<F, 5> f
#define PARAMETERS_7(F) PARAMETERS_6(F), Parameter<F, 6> g
#define PARAMETERS_8(F) PARAMETERS_7(F), Parameter<F, 7> h
#define PARAMETERS_9(F) PARAMETERS_8(F), Parameter<F, 8> i
#define PARAMETERS_10(F) PARAMETERS_9(F), Parameter<F, 9> j
#define PARAMETERS_11(F) PARAMETERS_10(F), Parameter<F, 10> k
#define ARGUMENTS_1 a
#define ARGUMENTS_2 ARGUMENTS_1, b
#define ARGUMENTS_3 ARGUMENTS_2, c
#define ARGUMENTS_4 ARGUMENTS_3, d
#define ARGUMENTS_5 ARGUMENTS_4, e
#define ARGUMENTS_6 ARGUMENTS_5, f
#define ARGUMENTS_7 ARGUMENTS_6, g
#define ARGUMENTS_8 ARGUMENTS_7, h
#define ARGUMENTS_9 ARGUMENTS_8, i
#define ARGUMENTS_10 ARGUMENTS_9, j
#define ARGUMENTS_11 ARGUMENTS_10, k

extern "C" {
#define CUDA_FN(name, room)                                         \
  static_assert(!IsTwin(#name) || Room::room == Room::kUnsupported, \
                "driver_api.def: CUDA_FN_PER_THREAD for " #name);
#define CUDA_FN_PER_THREAD(name, room, plain, parameters)                 \
  static_assert(IsTwinOf(#name, #plain));                                 \
  CUresult plain(PARAMETERS_##parameters(decltype(::plain))) {            \
    return api::plain(ARGUMENTS_##parameters, DefaultStream::kLegacy);    \
  }                                                                       \
  CUresult name(PARAMETERS_##parameters(decltype(::name))) {              \
    return api::plain(ARGUMENTS_##parameters, DefaultStream::kPerThread); \
  }
#include "proto/cuda/driver_api.def"
#undef CUDA_FN
}  // extern "C"
