#include "grid/kv_main.h"

int main(int argc, char **argv)
{
    return kv_main(argc, argv);
}
