// Reads the selection that a program has set on a variable.
//
// adios2::Variable has no call that says whether a block or a box was selected, or that part of an array in memory is
// meant (SetMemorySelection); without that
// knowledge an engine stores or returns wrong elements.
// core::InferSelection, which ADIOS2 installs with its headers, says it for the variable that adios2::Variable points
// to. That pointer is private, so it is reached by an explicit instantiation, where the language checks no access.
#pragma once

#include <adios2.h>
#include <adios2/common/Selection.h>

namespace offpath::adios {
namespace detail {

template <class T>
struct CoreOf {
  using Pointer = ::adios2::core::Variable<typename ::adios2::TypeInfo<T>::IOType>* ::adios2::Variable<T>::*;
  friend constexpr Pointer core_of(CoreOf);
};
template <class T, typename CoreOf<T>::Pointer pointer>
struct Reach {
  friend constexpr typename CoreOf<T>::Pointer core_of(CoreOf<T>) { return pointer; }
};
#define OFFPATH_REACH(T)                                    \
  constexpr typename CoreOf<T>::Pointer core_of(CoreOf<T>); \
  template struct Reach<T, &::adios2::Variable<T>::m_Variable>;
ADIOS2_FOREACH_STDTYPE_1ARG(OFFPATH_REACH)
#undef OFFPATH_REACH

}  // namespace detail

template <class T>
[[nodiscard]] ::adios2::core::Selection selection_of(const ::adios2::Variable<T>& variable) {
  // VariableBase is the first and only base of core::Variable, whose definition is not installed.
  return ::adios2::core::InferSelection(
      *reinterpret_cast<const ::adios2::core::VariableBase*>(variable.*core_of(detail::CoreOf<T>{})));
}

}  // namespace offpath::adios
