"""The networks that mxnet_train knows by the names of MXNet's image-classification examples."""

# Name there → name in gluon's model zoo.
ZOO = {
    "alexnet": "alexnet",
    "densenet-121": "densenet121",
    "densenet-161": "densenet161",
    "densenet-169": "densenet169",
    "densenet-201": "densenet201",
    "inception-v3": "inceptionv3",
    "mobilenet": "mobilenet1.0",
    "mobilenet-0.25": "mobilenet0.25",
    "mobilenet-0.5": "mobilenet0.5",
    "mobilenet-0.75": "mobilenet0.75",
    "mobilenet-v2": "mobilenetv2_1.0",
    "resnet-18": "resnet18_v1",
    "resnet-34": "resnet34_v1",
    "resnet-50": "resnet50_v1",
    "resnet-101": "resnet101_v1",
    "resnet-152": "resnet152_v1",
    "resnet-v2-18": "resnet18_v2",
    "resnet-v2-34": "resnet34_v2",
    "resnet-v2-50": "resnet50_v2",
    "resnet-v2-101": "resnet101_v2",
    "resnet-v2-152": "resnet152_v2",
    "squeezenet": "squeezenet1.0",
    "vgg-11": "vgg11",
    "vgg-13": "vgg13",
    "vgg-16": "vgg16",
    "vgg-19": "vgg19",
    "vgg-16-bn": "vgg16_bn",
}


def build(name, classes):
    """Return the network, not initialized. Raises KeyError for a name that is not in names()."""
    if name in ZOO:
        from mxnet.gluon.model_zoo import vision

        return vision.get_model(ZOO[name], classes=classes)
    return OWN[name](classes)


def names():
    """Return all names, ordered by number: resnet-18 before resnet-101."""

    def order(name):
        return [(0, int(word), "") if word.isdigit() else (1, 0, word) for word in name.split("-")]

    return sorted([*ZOO, *OWN], key=order)


def googlenet(classes):
    """Return Inception v1 (Szegedy et al., 2014, arXiv:1409.4842, table 1), without its two auxiliary heads."""
    from mxnet.gluon import nn
    from mxnet.gluon.contrib.nn import HybridConcurrent

    def convolution(into, channels, kernel, stride=1, padding=0):
        into.add(nn.Conv2D(channels, kernel, stride, padding), nn.Activation("relu"))

    def inception(*channels):
        """Return a block of four paths whose outputs are concatenated."""
        ones, reduce3, threes, reduce5, fives, pooled = channels
        block = HybridConcurrent(axis=1, prefix="")
        paths = [nn.HybridSequential(prefix="") for _ in range(4)]
        convolution(paths[0], ones, 1)
        convolution(paths[1], reduce3, 1)
        convolution(paths[1], threes, 3, padding=1)
        convolution(paths[2], reduce5, 1)
        convolution(paths[2], fives, 5, padding=2)
        paths[3].add(nn.MaxPool2D(3, 1, 1))
        convolution(paths[3], pooled, 1)
        block.add(*paths)
        return block

    net = nn.HybridSequential(prefix="googlenet_")
    with net.name_scope():
        convolution(net, 64, 7, 2, 3)
        net.add(nn.MaxPool2D(3, 2, ceil_mode=True))
        convolution(net, 64, 1)
        convolution(net, 192, 3, padding=1)
        net.add(nn.MaxPool2D(3, 2, ceil_mode=True))
        net.add(inception(64, 96, 128, 16, 32, 32), inception(128, 128, 192, 32, 96, 64))
        net.add(nn.MaxPool2D(3, 2, ceil_mode=True))
        net.add(
            inception(192, 96, 208, 16, 48, 64),
            inception(160, 112, 224, 24, 64, 64),
            inception(128, 128, 256, 24, 64, 64),
            inception(112, 144, 288, 32, 64, 64),
            inception(256, 160, 320, 32, 128, 128),
        )
        net.add(nn.MaxPool2D(3, 2, ceil_mode=True))
        net.add(inception(256, 160, 320, 32, 128, 128), inception(384, 192, 384, 48, 128, 128))
        net.add(nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dropout(0.4), nn.Dense(classes))
    return net


def lenet(classes):
    """Return the network of MXNet's train_mnist: two convolutions with tanh, for images of about 28 pixels."""
    from mxnet.gluon import nn

    net = nn.HybridSequential(prefix="lenet_")
    with net.name_scope():
        for channels in (20, 50):
            net.add(nn.Conv2D(channels, 5, activation="tanh"), nn.MaxPool2D(2, 2))
        net.add(nn.Dense(500, activation="tanh"), nn.Dense(classes))
    return net


def mlp(classes):
    """Return the other network of MXNet's train_mnist: 128 and 64 hidden units."""
    from mxnet.gluon import nn

    net = nn.HybridSequential(prefix="mlp_")
    with net.name_scope():
        net.add(nn.Dense(128, activation="relu"), nn.Dense(64, activation="relu"), nn.Dense(classes))
    return net


OWN = {"googlenet": googlenet, "lenet": lenet, "mlp": mlp}
