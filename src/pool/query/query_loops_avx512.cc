#define OFP_LOOPS avx512
#include "pool/query/query_loops.inc"
