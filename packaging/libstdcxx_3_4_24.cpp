/* Compiled into every C++ library of a wheel: what g++ 11 to 13 take from a C++ library newer than that of gcc 8, or from
 * a C library newer than 2.28. manylinux_2_28 has neither. */
#include <new>
#include <sstream>

template std::basic_stringstream<char>::basic_stringstream();
template std::string std::basic_stringbuf<char>::str() &&;

void std::__throw_bad_array_new_length() { throw std::bad_array_new_length(); }

/* Whether the process has one thread, so that counting references need not be atomic: never known here. */
extern "C" char __libc_single_threaded;
char __libc_single_threaded = 0;
