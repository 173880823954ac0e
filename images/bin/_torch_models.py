"""Models for torch_benchmark: ResNet, VGG and MobileNetV2, with the layers and parameters of their papers.

PyTorch has no models, and torchvision has no CPU wheel on PyPI. If torchvision is in the image, all of its models work.
"""

import torch
from torch import nn

# Blocks in each stage, and whether a block is a bottleneck.
RESNETS = {
    "resnet18": ((2, 2, 2, 2), False),
    "resnet34": ((3, 4, 6, 3), False),
    "resnet50": ((3, 4, 6, 3), True),
    "resnet101": ((3, 4, 23, 3), True),
    "resnet152": ((3, 8, 36, 3), True),
}
# Convolutions in each stage.
VGGS = {"vgg11": (1, 1, 2, 2, 2), "vgg13": (2, 2, 2, 2, 2), "vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)}
# Expansion, channels, blocks and first stride of each stage.
MOBILENET = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
NAMES = (*RESNETS, *VGGS, "mobilenetv2")


def convolution(before, after, size, stride=1, groups=1):
    """Return a convolution without bias and its batch normalization."""
    layer = nn.Conv2d(before, after, size, stride, padding=size // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(after))


class Residual(nn.Module):
    """A block whose input is added to its output, projected if the shapes differ."""

    def __init__(self, layers, before, after, stride, *, project=True, last=None):
        super().__init__()
        self.layers = layers
        differs = stride != 1 or before != after
        self.shortcut = convolution(before, after, 1, stride) if project and differs else None
        self.added = project or not differs
        self.last = last

    def forward(self, images):
        output = self.layers(images)
        if self.added:
            output = output + (images if self.shortcut is None else self.shortcut(images))
        return output if self.last is None else self.last(output)


def resnet(blocks, bottleneck, classes):
    channels = 64
    layers = [convolution(3, channels, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)]
    for stage, count in enumerate(blocks):
        width = 64 << stage
        after = width * 4 if bottleneck else width
        for block in range(count):
            stride = 2 if stage and not block else 1
            if bottleneck:
                parts = [convolution(channels, width, 1), nn.ReLU(inplace=True), convolution(width, width, 3, stride)]
                parts += [nn.ReLU(inplace=True), convolution(width, after, 1)]
            else:
                parts = [convolution(channels, width, 3, stride), nn.ReLU(inplace=True), convolution(width, width, 3)]
            layers.append(Residual(nn.Sequential(*parts), channels, after, stride, last=nn.ReLU(inplace=True)))
            channels = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def vgg(convolutions, classes):
    layers, before = [], 3
    for stage, count in enumerate(convolutions):
        after = min(64 << stage, 512)
        for _ in range(count):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(inplace=True)]
            before = after
        layers.append(nn.MaxPool2d(2, 2))
    layers += [nn.AdaptiveAvgPool2d(7), nn.Flatten()]
    for before, after in ((512 * 49, 4096), (4096, 4096)):
        layers += [nn.Linear(before, after), nn.ReLU(inplace=True), nn.Dropout()]
    return nn.Sequential(*layers, nn.Linear(4096, classes))


def mobilenet(classes):
    layers, before = [convolution(3, 32, 3, 2), nn.ReLU6(inplace=True)], 32
    for expansion, after, count, first in MOBILENET:
        for block in range(count):
            stride, inner = (1 if block else first), before * expansion
            parts = [convolution(before, inner, 1), nn.ReLU6(inplace=True)] if expansion > 1 else []
            parts += [convolution(inner, inner, 3, stride, inner), nn.ReLU6(inplace=True), convolution(inner, after, 1)]
            layers.append(Residual(nn.Sequential(*parts), before, after, stride, project=False))
            before = after
    layers += [convolution(before, 1280, 1), nn.ReLU6(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Dropout(0.2), nn.Linear(1280, classes))


def build(name, classes):
    """Return the model of this name. Raises ValueError, with all names, for an unknown name."""
    plain = name.lower().replace("_", "").replace("-", "")
    if plain in RESNETS:
        return resnet(*RESNETS[plain], classes)
    if plain in VGGS:
        return vgg(VGGS[plain], classes)
    if plain == "mobilenetv2":
        return mobilenet(classes)
    try:
        from torchvision import models
    except ImportError:
        raise ValueError("no model '%s'; there are: %s" % (name, " ".join(NAMES))) from None
    try:
        return models.get_model(name.lower(), num_classes=classes)
    except ValueError:
        names = sorted({*NAMES, *models.list_models(module=models)})
        raise ValueError("no model '%s' in torchvision; there are: %s" % (name, " ".join(names))) from None


def parameters(model):
    """Return the number of the model's parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def batch(count, size, classes, device):
    """Return synthetic images and labels, the same for every step."""
    images = torch.rand(count, 3, size, size, device=device) * 2 - 1
    return images, torch.randint(classes, (count,), device=device)
