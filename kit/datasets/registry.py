"""List the published data sets: where to download them, and the size and SHA-256 of each file."""

from dataclasses import dataclass

# Folders of each data set in the order in which they are tried. No mirror is trusted: size and SHA-256 decide.
MIRRORS: dict[str, tuple[str, ...]] = {
    "mnist": (
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
    ),
    "fashion-mnist": (
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
    "cifar-10": (
        "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/",
        "https://www.cs.toronto.edu/~kriz/",  # throttled to less than 100 kB/s since June 2026
    ),
    "cats-dogs": ("https://download.microsoft.com/download/3/E/1/3E1C3F21-ECDB-4869-8368-6DEBA77B919F/",),
}


@dataclass(frozen=True)
class RemoteFile:
    """One file of a published data set. size: bytes. content: SHA-256 of the unpacked gzip file, if it is known."""

    name: str
    size: int
    sha256: str
    content: str = ""


SOURCES: dict[str, tuple[RemoteFile, ...]] = {
    "mnist": (
        RemoteFile(
            "train-images-idx3-ubyte.gz",
            9_912_422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        RemoteFile(
            "train-labels-idx1-ubyte.gz",
            28_881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
        RemoteFile(
            "t10k-images-idx3-ubyte.gz",
            1_648_877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        RemoteFile(
            "t10k-labels-idx1-ubyte.gz",
            4_542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    "fashion-mnist": (
        RemoteFile(
            "train-images-idx3-ubyte.gz",
            26_421_880,
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        ),
        RemoteFile(
            "train-labels-idx1-ubyte.gz",
            29_515,
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        ),
        RemoteFile(
            "t10k-images-idx3-ubyte.gz",
            4_422_102,
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        ),
        RemoteFile(
            "t10k-labels-idx1-ubyte.gz",
            5_148,
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
    ),
    "cifar-10": (
        RemoteFile(
            "cifar-10-binary.tar.gz",
            170_052_171,
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        ),
    ),
    "cats-dogs": (
        RemoteFile(
            "kagglecatsanddogs_5340.zip",
            824_887_076,
            "b7974bd00a84a99921f36ee4403f089853777b5ae8d151c76a86e64900334af9",
        ),
    ),
}

# SHA-256 of the files of the binary version of CIFAR-10. Each file holds 10,000 records of 3,073 bytes.
CIFAR_FILE_BYTES = 30_730_000
CIFAR_FILES: dict[str, str] = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
